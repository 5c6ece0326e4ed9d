"""A streaming job in its own process, to be killed: it writes a store's log into Parquet files, batch by
batch.

    python -m tests.spark.streamingjob STORE OUTPUT CHECKPOINT [FIFO MESSAGE]

With a FIFO, the task that reaches MESSAGE writes its process id there and stops in the middle of its batch.
Otherwise
`idle` is printed when everything was read, and the job waits for more."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator

import pyarrow as pa
import pyarrow.compute as pc

from sparkreplay.engine.engine import start_spark
from sparkreplay.source.datasource import register

Batches = Iterator[pa.RecordBatch]


def stopping_at(message: str, fifo: str) -> Callable[[Batches], Batches]:
    def pass_on(batches: Batches) -> Batches:
        for batch in batches:
            if pc.any(pc.equal(batch["msg_id"], message)).as_py():
                with open(fifo, "w") as file:
                    file.write(f"{os.getpid()}\n")
                signal.pause()
            yield batch

    return pass_on


def main(store: str, output: str, checkpoint: str, fifo: str = "", message: str = "") -> None:
    spark = start_spark("local[2]", "streaming job")
    register(spark)
    reader = spark.readStream.format("rocketmq").options(columns="msg_id", maxOffsetsPerTrigger="100")
    rows = reader.load(store)
    if fifo:
        rows = rows.mapInArrow(stopping_at(message, fifo), rows.schema)
    query = (
        rows.writeStream.format("parquet")
        .option("path", output)
        .option("checkpointLocation", checkpoint)
        .start()
    )
    query.processAllAvailable()
    print("idle", flush=True)
    query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
