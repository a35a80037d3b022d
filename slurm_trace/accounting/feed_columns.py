"""What the columns of a provider's billing feed mean, and how its cells are read.

schema/json/feed.schema.json says the same for people; a test holds the two together. Names of FOCUS (the FinOps Open
Cost and Usage Specification, https://focus.finops.org, versions 1.0 to 1.3) are taken as they stand.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction

ALIASES: dict[str, tuple[str, ...]] = {
    "provider": ("ServiceProviderName", "ProviderName"),
    "account": ("BillingAccountId", "SubAccountId"),
    "resource": ("ResourceId",),
    "sku": ("SkuId",),
    "meter": ("SkuMeter",),
    "service_category": ("ServiceCategory",),
    "charge_category": ("ChargeCategory",),
    "hours": ("ConsumedQuantity",),
    "unit": ("ConsumedUnit",),
    "quantity": (),
    "cost": ("BilledCost",),
    "currency": ("BillingCurrency",),
    "start": ("ChargePeriodStart",),
    "end": ("ChargePeriodEnd",),
}
"""Columns by name, each with its names in FOCUS; of several in one header the first counts."""

REQUIRED = ("account", "resource", "sku", "hours", "start", "end")

LONGEST_S = 3600 * 10**12
"""No charge is for more time, a million instances included."""

MOST_INSTANCES = 10**6

_NUMBER = re.compile(r"[+-]?(?:\d{1,40}(?:\.\d{0,40})?|\.\d{1,40})(?:[eE][+-]?\d{1,2})?", re.ASCII)
_UNIT = re.compile(
    r"(?:(?P<n>\d{1,6}) ?)?(?:(?:accelerator|chip|core|gpu|instance|node|vcpu|vm)s?[- ])?(?P<unit>[a-z]+)",
    re.ASCII,
)
_SECONDS = {
    **dict.fromkeys(("second", "seconds", "sec", "secs", "s"), 1),
    **dict.fromkeys(("minute", "minutes", "min", "mins"), 60),
    **dict.fromkeys(("hour", "hours", "hr", "hrs", "h"), 3600),
    **dict.fromkeys(("day", "days", "d"), 86_400),
}
_PROVIDERS = {
    "aws": ("aws", "amazon", "amazonwebservices", "amazonwebservicesinc"),
    "azure": ("azure", "microsoft", "microsoftazure", "microsoftcorporation"),
    "gcp": ("gcp", "google", "googlecloud", "googlecloudplatform", "googlecompute"),
}
_PROVIDER_IDS = {name: provider for provider, names in _PROVIDERS.items() for name in names}


def find_columns(header: Sequence[str]) -> tuple[dict[str, int], tuple[str, ...]]:
    """Where each known column stands in a header.

    Returns:
        Positions by name, and the required columns that are missing.
    """
    places: dict[str, int] = {}
    for position, cell in enumerate(header):
        places.setdefault(_level(cell), position)
    found = {}
    for name, aliases in ALIASES.items():
        at = next((places[_level(n)] for n in (name, *aliases) if _level(n) in places), None)
        if at is not None:
            found[name] = at
    return found, tuple(name for name in REQUIRED if name not in found)


def is_plain_hours(header: Sequence[str]) -> bool:
    """The column is called `hours`, so that its unit needs no telling."""
    return any(_level(cell) == "hours" for cell in header)


def read_number(text: str) -> Fraction | None:
    """A decimal number, exactly; None if the text is none (a decimal comma may be one of thousands)."""
    text = text.strip()
    return Fraction(Decimal(text)) if _NUMBER.fullmatch(text) else None


def unit_seconds(text: str) -> int | None:
    """Seconds of a unit such as `Hours`, `100 Hours` or `GPU-Hours`; None for one that is not of time."""
    found = _UNIT.fullmatch(text.strip().lower())
    if found is None or found["unit"] not in _SECONDS:
        return None
    return int(found["n"] or 1) * _SECONDS[found["unit"]]


def provider_id(text: str) -> str:
    """A provider as the registry of SKUs names it; any other as it stands, without case."""
    plain = text.strip().lower()
    return _PROVIDER_IDS.get(re.sub(r"[^a-z]", "", plain), plain)


def _level(name: str) -> str:
    return re.sub(r"[\s_]", "", name).lower()
