"""A short campaign: kills, pauses, restarts and poison on one broker, and nothing is wrong afterwards."""

from dataclasses import asdict
from pathlib import Path

import pytest
from campaign import Campaign, Options
from chaos_report import Report
from local_kafka_jars import KafkaInstallation


@pytest.mark.durable_broker
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_short_campaign(kafka_jars: KafkaInstallation, tmp_path: Path) -> None:
    """Twenty seconds of blows; states, outputs, dead letters and files are those of an undisturbed run."""
    options = Options(seed=4, kills=8, minutes=1 / 3, brokers=1)
    report = Report(asdict(options))
    with Campaign(options, tmp_path, report) as campaign:
        campaign.run()
    assert report.problems == [], report.as_json()
    assert report.blows["workers killed with -9"]
    assert report.figures["keys compared"] > 200
    assert report.figures["poison, and as many dead letters"]
