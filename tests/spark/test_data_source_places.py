"""In a real Spark session: a store in a bucket with the bound of a live broker, opened again by each
worker."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sparkreplay.engine.engine import missing_for_spark
from tests.unit.sparkreplay.memoryfilesystem import content_of, s3_server
from tests.unit.sparkreplay.scriptedbroker import ScriptedBroker, serving
from tests.unit.sparkreplay.storefolder import StoreFolder

pytestmark = [
    pytest.mark.skipif(
        missing_for_spark() is not None, reason=f"Spark cannot run here: {missing_for_spark()}"
    ),
    pytest.mark.filterwarnings("ignore"),
]


@pytest.fixture
def folder(tmp_path: Path) -> StoreFolder:
    store = StoreFolder(tmp_path, segment_bytes=16384)
    for number in range(60):
        store.add(body=bytes([number]) * 700)
    store.write(confirm=store.ends[40])
    return store


def test_workers_read_a_bucket_up_to_the_live_brokers_bound(spark: Any, folder: StoreFolder) -> None:
    with (
        s3_server(content_of(folder.root, "logs/a")) as (options, _),
        serving(ScriptedBroker(confirm=folder.ends[50])) as broker,
    ):
        reader = spark.read.format("rocketmq").options(address=broker.address, splitBytes="8k")
        frame = reader.load(f"s3://reader:hush@logs/a?{options}")
        assert sorted(row.body[0] for row in frame.select("body").collect()) == list(range(51))
        broker.epochs = ((1, 0), (2, folder.ends[3]))
        with pytest.raises(Exception, match="different logs, or the store was copied before a truncation"):
            reader.load(f"s3://reader:hush@logs/a?{options}").count()


def test_an_inaccessible_bucket_is_reported_at_planning_without_the_key(
    spark: Any, folder: StoreFolder
) -> None:
    with s3_server(content_of(folder.root, "logs/a")) as (options, _):
        with pytest.raises(Exception, match="check bucket, region and credentials") as refused:
            spark.read.format("rocketmq").load(f"s3://stranger:hush@logs/a?{options}").count()
    assert "hush" not in str(refused.value)
