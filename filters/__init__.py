"""SQL92 expressions over message properties, parsed and evaluated as in upstream's `rocketmq-filter`."""
