"""SQL92 expressions over message properties, as upstream's `rocketmq-filter` reads and evaluates them."""
