"""The Grafana dashboard: Grafana's own types accept it, and each panel asks for what is exposed."""

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from exposed_metrics import RULES, faults, promtool, selected

ROOT = Path(__file__).parents[2]
OPS = ROOT / "ops" / "grafana"
DASHBOARD = json.loads((OPS / "dashboards" / "trustfold.json").read_text())
PANELS: list[dict[str, Any]] = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
QUERIES = [(panel["title"], target["expr"]) for panel in PANELS for target in panel.get("targets", ())]

TYPES = {"timeseries": "TimeSeries", "state-timeline": "StateTimeline"}
"""Kinds of panel whose options Grafana publishes as types."""

CHECK = """
import type {{ Dashboard }} from '@grafana/schema';
{imports}
// In JSON an enumeration is its values.
type Plain<T> = T extends string ? `${{T}}`
  : T extends (infer U)[] ? Plain<U>[]
  : T extends object ? {{ [K in keyof T]: Plain<T[K]> }} : T;
const dashboard: Plain<Dashboard> = {dashboard};
{panels}
"""


def typescript() -> Path:
    """The folder of npm's packages that holds TypeScript and Grafana's types; skips where there is none."""
    for folder in [*os.environ.get("NODE_PATH", "").split(os.pathsep), str(ROOT / "node_modules")]:
        if folder and (Path(folder) / ".bin" / "tsc").exists() and (Path(folder) / "@grafana" / "schema").exists():
            return Path(folder)
    pytest.skip("no Grafana types: npm install --no-save --no-package-lock @grafana/schema typescript")


def complaints(dashboard: dict[str, Any], folder: Path) -> str:
    """What the TypeScript compiler says about a dashboard, checked in a folder."""
    packages = typescript()
    imports, panels = [], []
    for number, panel in enumerate(dashboard["panels"]):
        if panel["type"] in TYPES:
            name = TYPES[panel["type"]]
            place = f"raw/composable/{name.lower()}/panelcfg/x/{name}PanelCfg_types.gen"
            imports.append(f"import type * as p{number} from '@grafana/schema/dist/esm/{place}';")
            custom = panel["fieldConfig"]["defaults"]["custom"]
            panels += [
                f"const o{number}: Plain<p{number}.Options> = {json.dumps(panel['options'])};",
                f"const f{number}: Plain<p{number}.FieldConfig> = {json.dumps(custom)};",
            ]
    text = CHECK.format(imports="\n".join(imports), dashboard=json.dumps(dashboard), panels="\n".join(panels))
    (folder / "check.ts").write_text(text)
    (folder / "node_modules").symlink_to(packages)
    options = "--strict --noEmit --module nodenext --moduleResolution nodenext --skipLibCheck --types".split()
    done = subprocess.run(
        [packages / ".bin" / "tsc", *options, "", "check.ts"], cwd=folder, capture_output=True, text=True, check=False
    )
    return done.stdout + done.stderr


def test_grafanas_types_accept_the_dashboard(tmp_path: Path) -> None:
    """The model of dashboards and the options of each panel, as Grafana publishes them."""
    assert complaints(DASHBOARD, tmp_path) == ""


def test_grafanas_types_find_a_fault(tmp_path: Path) -> None:
    """An option that does not exist."""
    panel = {**PANELS[1], "options": {**PANELS[1]["options"], "legend": {"displayMode": "sideways"}}}
    assert "sideways" in complaints({**DASHBOARD, "panels": [panel]}, tmp_path)


def test_panels_ask_for_what_is_exposed() -> None:
    """Each metric, label and value exists."""
    assert {title: faults(query) for title, query in QUERIES if faults(query)} == {}
    assert [title for title, query in QUERIES if next(selected(query), None) is None] == []


def test_prometheus_reads_the_queries(tmp_path: Path) -> None:
    """Each is PromQL once Grafana has put its variables in."""
    rules = [
        {"record": f"panel:{number}", "expr": query.replace("$__rate_interval", "1m").replace("$tool", "a|b")}
        for number, (_, query) in enumerate(QUERIES)
    ]
    (tmp_path / "rules.yml").write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    assert f"{len(rules)} rules found" in promtool("check", "rules", tmp_path / "rules.yml")


def test_panels_lie_side_by_side() -> None:
    """24 columns wide, nothing over anything else, each with a number of its own, a title and words about it."""
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        cells = set(_cells(place))
        assert place["x"] + place["w"] <= 24
        assert not cells & taken, panel["title"]
        taken |= cells
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
    assert all(panel["description"] for panel in PANELS)
    assert all(panel["fieldConfig"]["defaults"]["unit"] for panel in PANELS if panel["type"] == "timeseries")


def test_thresholds_are_those_of_the_alerts() -> None:
    """Dashed lines stand where alerts fire."""
    alerting = {float(number) for number in re.findall(r"[<>] (\d+(?:\.\d+)?)\b", RULES.read_text())}
    drawn = [
        step["value"]
        for panel in PANELS
        for step in panel["fieldConfig"]["defaults"].get("thresholds", {}).get("steps", ())
        if step["value"] is not None
    ]
    assert len(drawn) == 9
    assert set(drawn) <= alerting


def test_what_is_provisioned_exists() -> None:
    """The data source that the dashboard chooses from, and the folder that compose mounts."""
    source = yaml.safe_load((OPS / "provisioning" / "datasources" / "prometheus.yml").read_text())["datasources"][0]
    assert source["type"] == DASHBOARD["templating"]["list"][0]["query"]
    provider = yaml.safe_load((OPS / "provisioning" / "dashboards" / "trustfold.yml").read_text())["providers"][0]
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]["grafana"]
    assert f"./ops/grafana/dashboards:{provider['options']['path']}:ro" in compose["volumes"]


def _cells(place: dict[str, int]) -> Iterator[tuple[int, int]]:
    for x in range(place["x"], place["x"] + place["w"]):
        for y in range(place["y"], place["y"] + place["h"]):
            yield x, y
