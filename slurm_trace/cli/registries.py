"""`rates` and `thresholds`: the registries, each entry with where it comes from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from slurm_trace.cli import output
from slurm_trace.errors import UsageProblem

if TYPE_CHECKING:
    from slurm_trace.analysis.ceiling import DeviceRate
    from slurm_trace.analysis.entries import CpuCore
    from slurm_trace.analysis.rates import Rates

PROVENANCE = ("basis", "source", "revision", "verified", "notes")
RATE_COLUMNS = (
    "section", "id", "vendor", "name", "kind", "status", "counted_as", "architecture", "units", "max_clock_mhz",
    "datasheet", "bounded_by", "memory_gb", "tdp_w", "nvml_names", "slurm_types", "mig_profiles",
    "max_any_op_flop_s", "max_fp_sparse_flop_s", "max_fp_dense_flop_s", "bf16_dense_flop_s", *PROVENANCE,
)  # fmt: skip
THRESHOLD_COLUMNS = (
    "id", "flop", "exact", "comparison", "unit", "counts", "jurisdiction", "title", "status", "in_force_from", "until",
    "citation", *PROVENANCE,
)  # fmt: skip

overlay_option = click.option("--rates-overlay", metavar="FILE", help="The site's own rates and thresholds.")


@click.command()
@click.argument("label", required=False)
@click.option("--device", metavar="ID", help="One device or CPU class, every field of it.")
@overlay_option
@output.format_options
def rates(label: str | None, device: str | None, rates_overlay: str | None, output_format: str) -> None:
    """Print the registry of device rates; with LABEL what a Slurm type, a driver name or a CPU model is taken for."""
    from slurm_trace.analysis.rates import Rates

    registry = Rates.load(Path(rates_overlay) if rates_overlay else None)
    chosen = _chosen(registry, label, device)
    if output_format == "json":
        output.print_json(_rates_json(registry, label, chosen))
    elif output_format == "csv":
        output.print_csv(RATE_COLUMNS, _rate_rows(registry, chosen))
    elif device is not None:
        _print_entry(next(_rate_rows(registry, chosen)))
    else:
        _print_rates(registry, label, chosen)


@click.command()
@overlay_option
@output.format_options
def thresholds(rates_overlay: str | None, output_format: str) -> None:
    """Print the registry of compute thresholds."""
    from slurm_trace.analysis.thresholds import DEFAULT, Thresholds

    registry = Thresholds.load(Path(rates_overlay) if rates_overlay else None)
    rows = [{**_plain(t.entry), "flop": t.flop, "exact": t.entry["flop"]} for t in registry]
    if output_format == "json":
        head = {"schema": "slurm-trace/thresholds/1", "digest": registry.digest, "default": DEFAULT}
        output.print_json({**head, "thresholds": rows})
    elif output_format == "csv":
        output.print_csv(THRESHOLD_COLUMNS, rows)
    else:
        output.print_table(
            ("id", "FLOP", "counts", "status", "from", "citation", "verified", "source"),
            [
                (
                    row["id"],
                    f"{row['comparison']} {row['exact']}",
                    f"{row['unit']}: {row['counts']}",
                    row["status"],
                    row.get("in_force_from", ""),
                    row["citation"],
                    _yes(row["verified"]),
                    row["source"],
                )
                for row in rows
            ],
            title=f"Compute thresholds (default {DEFAULT}; registry {registry.digest[:16]})",
        )


def _chosen(registry: Rates, label: str | None, device: str | None) -> set[str]:
    if device is not None:
        if device not in registry.devices and device not in registry.cpu_cores:
            raise UsageProblem(
                f"no device {device!r} in the rate registry: `slurm-trace rates` lists the ids"
            )
        return {device}
    if label is None:
        return {*registry.devices, *registry.cpu_cores}
    core, _ = registry.cpu_core_ops_s(label, "max_any_op")
    fit = registry.resolve(label)
    if fit.how == "unknown" and registry.knows_core(label):
        return {core}
    return set(fit.device_ids) if fit.how != "unknown" else {fit.ceiling_id}


def _rates_json(registry: Rates, label: str | None, chosen: set[str]) -> dict[str, Any]:
    found: dict[str, Any] = {
        "schema": "slurm-trace/rates/1",
        "digest": registry.digest,
        "complete_through": registry.complete_through,
    }
    if label is not None:
        fit = registry.resolve(label)
        found["resolution"] = {
            "label": label,
            "how": fit.how,
            "ceiling_id": fit.ceiling_id,
            "mig_profile": fit.mig_profile,
            "verified": fit.verified,
            "ceilings_flop_s": dict(fit.ceilings),
        }
    found["ceilings_flop_s"] = {
        **{i: _ceilings(registry, d) for i, d in registry.devices.items() if i in chosen},
        **{i: _core_ceilings(c) for i, c in registry.cpu_cores.items() if i in chosen},
    }
    found["registry"] = {
        "schema": "slurm-trace/registry/1",
        **{
            section: [
                _plain(entry)
                for i, entry in entries.items()
                if section not in ("devices", "cpu_cores") or i in chosen
            ]
            for section, entries in registry.sections.items()
        },
    }
    return found


def _rate_rows(registry: Rates, chosen: set[str]) -> Iterator[dict[str, Any]]:
    profiles: dict[str, Any] = {}
    for table in registry.sections["mig_profiles"].values():
        profiles.update((device_id, dict(table["sms"])) for device_id in table["devices"])
    for device_id, device in registry.devices.items():
        if device_id in chosen:
            row = {"section": "devices", **_plain(device.entry), "mig_profiles": profiles.get(device_id)}
            yield {**row, **_columns(_ceilings(registry, device))}
    for core_id, core in registry.cpu_cores.items():
        if core_id in chosen:
            yield {"section": "cpu_cores", **_plain(core.entry), **_columns(_core_ceilings(core))}


def _print_rates(registry: Rates, label: str | None, chosen: set[str]) -> None:
    title = f"Device ceilings in 1e12 op/s (registry {registry.digest[:16]})"
    if label is not None:
        fit = registry.resolve(label)
        taken = sorted(chosen)[0] if len(chosen) == 1 else fit.ceiling_id
        title = (
            f"{label!r} is taken for {taken} ({fit.how if taken == fit.ceiling_id else 'CPU core'})\n{title}"
        )
    output.print_table(
        (
            "id",
            "units",
            "MHz",
            "any op",
            "FP sparse",
            "FP dense",
            "BF16 (estimate)",
            "verified",
            "revision",
            "source",
        ),
        [
            (
                row["id"],
                str(row.get("units", "")),
                str(row.get("max_clock_mhz", "")),
                *(_tera(row[f"{basis}_flop_s"]) for basis in _bases()),
                _yes(row["verified"]),
                row["revision"],
                row["source"] if label is not None else _first(row["source"]),
            )
            for row in _rate_rows(registry, chosen)
        ],
        title=title,
        right=("units", "MHz", "any op", "FP sparse", "FP dense", "BF16 (estimate)"),
    )


def _print_entry(row: Mapping[str, Any]) -> None:
    lines = [(name, _text(value)) for name, value in row.items() if value not in (None, [], {})]
    output.print_table(("field", "value"), lines, title=str(row["id"]))


def _bases() -> tuple[str, ...]:
    from slurm_trace.analysis.ceiling import BASES

    return BASES


def _ceilings(registry: Rates, device: DeviceRate) -> dict[str, int]:
    return {basis: registry.ceiling_ops_s(device.id, basis) for basis in _bases()}


def _core_ceilings(core: CpuCore) -> dict[str, int]:
    return {basis: core.ceiling_ops_s(basis) for basis in _bases()}


def _columns(ceilings: Mapping[str, int]) -> dict[str, int]:
    return {f"{basis}_flop_s": value for basis, value in ceilings.items()}


def _plain(value: Any) -> Any:
    """Registry data as JSON writes it."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    return value


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        return "; ".join(f"{key}: {_text(item)}" for key, item in value.items())
    return ", ".join(map(_text, value)) if isinstance(value, list) else str(value)


def _first(source: str) -> str:
    """The first of several sources; `--device` prints them all."""
    first, *others = source.split("; ")
    return f"{first} (+{len(others)})" if others else first


def _tera(ops_s: int) -> str:
    return f"{ops_s / 1e12:,.1f}"


def _yes(flag: bool) -> str:
    return "yes" if flag else "no"
