"""Twenty-five tool functions in the idiom that language models write; data for tests.

Single functions with typed parameters, defensive validation, mock tables, standard library only.
`expected` runs them with plain `exec`; the sandbox must give equal JSON. Those marked `nondet` read
the clock or a generator: their outcome depends on the sandbox's sources, so only its shape counts.
"""

# ruff: noqa: E501

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Sample:
    """One tool and the calls to make, in order."""

    name: str
    calls: list[dict[str, Any]]
    source: str
    nondet: bool = False


CORPUS: list[Sample] = []


def _add(name: str, calls: list[dict[str, Any]], source: str, nondet: bool = False) -> None:
    CORPUS.append(Sample(name, calls, source.lstrip("\n"), nondet))


#: Turns a plain function of one sample into a tool: all its calls in one, exceptions as data.
ADAPTER = """

def run_all(state, *, calls):
    import json as _json_module
    def attempt(words):
        try:
            return _json_module.loads(_json_module.dumps(NAME(**words), default=str))
        except Exception as error:
            return {"raised": type(error).__name__, "text": str(error)}
    return {"outcomes": [attempt(words) for words in calls]}
"""


def as_tool(sample: Sample) -> str:
    """The source of a module with the tool `run_all`."""
    return sample.source + ADAPTER.replace("NAME", sample.name).replace("_json_module", "json_")


def expected(sample: Sample) -> dict[str, Any]:
    """What the tool gives without any sandbox."""
    names: dict[str, Any] = {"__name__": "tool"}
    exec(compile(as_tool(sample), sample.name, "exec", dont_inherit=True), names)
    result: dict[str, Any] = names["run_all"]({}, calls=sample.calls)
    return dict(json.loads(json.dumps(result)))


_add(
    "get_current_weather",
    [
        {"city": "Beijing"},
        {"city": " shanghai ", "unit": "fahrenheit"},
        {"city": "Atlantis"},
        {"city": 5},
    ],
    '''
from typing import Any, Dict, Optional

def get_current_weather(city: str, unit: str = "celsius", include_forecast: bool = False) -> Dict[str, Any]:
    """Return simulated current weather for a city."""
    # ---- validation -------------------------------------------------
    if not isinstance(city, str):
        return {"status": "error", "message": f"Parameter 'city' must be a string, got {type(city).__name__}."}
    if not city.strip():
        return {"status": "error", "message": "Parameter 'city' cannot be empty."}
    if unit not in ("celsius", "fahrenheit"):
        return {"status": "error", "message": f"Invalid unit {unit!r}"}
    weather_db: Dict[str, Dict[str, Any]] = {
        "beijing": {"temp_c": 22.5, "condition": "Sunny", "humidity": 40},
        "shanghai": {"temp_c": 26.0, "condition": "Cloudy", "humidity": 68},
    }
    key = city.strip().lower()
    record: Optional[Dict[str, Any]] = weather_db.get(key)
    if record is None:
        return {"status": "error", "message": f"No data for '{city}'. Available: {', '.join(sorted(weather_db))}"}
    temp = record["temp_c"] if unit == "celsius" else round(record["temp_c"] * 9 / 5 + 32, 1)
    result = {"status": "success", "city": key.title(), "temperature": temp, "unit": unit, **record}
    if include_forecast:
        result["forecast"] = [{"day": i + 1, "temp": round(temp + 0.5 * i, 1)} for i in range(3)]
    return result
''',
)

_add(
    "convert_currency",
    [
        {"amount": 100, "from_currency": "usd", "to_currency": "EUR"},
        {"amount": "abc", "from_currency": "USD", "to_currency": "EUR"},
        {"amount": -1, "from_currency": "USD", "to_currency": "JPY"},
    ],
    """
from decimal import Decimal, ROUND_HALF_UP, InvalidOperation

RATES = {"USD": Decimal("1.0"), "EUR": Decimal("0.92"), "JPY": Decimal("151.37"), "CNY": Decimal("7.24")}

def convert_currency(amount, from_currency: str, to_currency: str, precision: int = 2) -> str:
    try:
        value = Decimal(str(amount))
    except (InvalidOperation, ValueError) as exc:
        return f"Error: invalid amount '{amount}' ({exc.__class__.__name__})"
    if value < 0:
        return "Error: amount must be non-negative"
    src, dst = from_currency.upper(), to_currency.upper()
    for code in (src, dst):
        if code not in RATES:
            raise ValueError(f"Unsupported currency: {code}")
    quant = Decimal(1).scaleb(-precision)
    converted = (value / RATES[src] * RATES[dst]).quantize(quant, rounding=ROUND_HALF_UP)
    return f"{value:,.2f} {src} = {converted:,} {dst} (rate {RATES[dst] / RATES[src]:.4f})"
""",
)

_add(
    "search_hotels",
    [
        {"city": "Paris", "max_price": 200},
        {"city": "Paris", "amenities": ["pool"], "sort_by": "rating"},
        {"city": "Paris", "min_rating": 9},
    ],
    """
from typing import List, Optional, Dict, Any

def search_hotels(city: str, max_price: Optional[float] = None, min_rating: float = 0.0,
                  amenities: Optional[List[str]] = None, sort_by: str = "price", limit: int = 5) -> Dict[str, Any]:
    hotels = [
        {"id": "H1", "name": "Le Petit", "city": "Paris", "price": 120.0, "rating": 4.1, "amenities": ["wifi"]},
        {"id": "H2", "name": "Grand Seine", "city": "Paris", "price": 340.0, "rating": 4.8, "amenities": ["wifi", "pool", "spa"]},
        {"id": "H3", "name": "Gare Inn", "city": "Paris", "price": 89.0, "rating": 3.6, "amenities": []},
        {"id": "H4", "name": "Tiber View", "city": "Rome", "price": 150.0, "rating": 4.4, "amenities": ["pool"]},
    ]
    errors = []
    if not isinstance(city, str) or not city:
        errors.append("city must be a non-empty string")
    if max_price is not None and (isinstance(max_price, bool) or not isinstance(max_price, (int, float))):
        errors.append("max_price must be a number")
    if not 0 <= min_rating <= 5:
        errors.append("min_rating must be within [0, 5]")
    if errors:
        return {"success": False, "errors": errors}
    wanted = {a.lower() for a in (amenities or [])}
    matches = [h for h in hotels
               if h["city"].lower() == city.lower()
               and (max_price is None or h["price"] <= max_price)
               and h["rating"] >= min_rating
               and wanted.issubset(set(h["amenities"]))]
    key_funcs = {"price": lambda h: h["price"], "rating": lambda h: -h["rating"], "name": lambda h: h["name"]}
    matches.sort(key=key_funcs.get(sort_by, key_funcs["price"]))
    avg = sum(h["price"] for h in matches) / len(matches) if matches else None
    return {"success": True, "total": len(matches), "average_price": avg, "results": matches[:limit]}
""",
)

_add(
    "summarize_sales",
    [{"records": [["a", "x", 3], ["b", "x", 4.5], ["a", "y", 1]]}, {"records": "nope"}],
    '''
from collections import defaultdict, Counter, OrderedDict, deque

def summarize_sales(records: list, top_n: int = 2) -> dict:
    """Aggregate sales by customer and product."""
    if not isinstance(records, (list, tuple)):
        return {"error": "records must be a list"}
    by_customer = defaultdict(float)
    by_product = defaultdict(lambda: {"units": 0, "revenue": 0.0})
    counts = Counter()
    recent = deque(maxlen=2)
    for idx, (customer, product, amount) in enumerate(records, start=1):
        by_customer[customer] += amount
        by_product[product]["units"] += 1
        by_product[product]["revenue"] += float(amount)
        counts.update([product])
        recent.append(idx)
    ranked = OrderedDict(sorted(by_customer.items(), key=lambda kv: (-kv[1], kv[0])))
    return {"by_customer": dict(ranked), "by_product": {k: dict(v) for k, v in by_product.items()},
            "top": counts.most_common(top_n), "recent": list(recent)}
''',
)

_add(
    "calculate_date_difference",
    [
        {"start_date": "2024-01-15", "end_date": "2024-03-01"},
        {"start_date": "15/01/2024", "end_date": "2024-03-01"},
        {"start_date": "2024-01-15", "end_date": "x"},
    ],
    """
import datetime
from datetime import timedelta

def calculate_date_difference(start_date: str, end_date: str, include_end: bool = False) -> dict:
    FORMATS = ["%Y-%m-%d", "%d/%m/%Y", "%B %d, %Y"]

    def _parse(value):
        for fmt in FORMATS:
            try:
                return datetime.datetime.strptime(value, fmt).date()
            except ValueError:
                continue
        raise ValueError(f"Unrecognised date: {value}")

    try:
        s, e = _parse(start_date), _parse(end_date)
    except ValueError as err:
        return {"status": "error", "reason": str(err)}
    delta = (e - s) + (timedelta(days=1) if include_end else timedelta(0))
    weekdays = sum(1 for i in range(abs(delta.days)) if (s + timedelta(days=i)).weekday() < 5)
    return {"days": delta.days, "weeks": divmod(delta.days, 7), "business_days": weekdays,
            "start": s.strftime("%A %d %B %Y"), "end_iso": e.isoformat(), "leap": (s.year % 4 == 0)}
""",
)

_add(
    "haversine_distance",
    [
        {"lat1": 39.9, "lon1": 116.4, "lat2": 31.2, "lon2": 121.5},
        {"lat1": 200, "lon1": 0, "lat2": 0, "lon2": 0},
    ],
    """
import math

def haversine_distance(lat1: float, lon1: float, lat2: float, lon2: float, unit: str = "km") -> float:
    EARTH_RADIUS = {"km": 6371.0088, "mi": 3958.7613}
    for name, value, bound in (("lat1", lat1, 90), ("lon1", lon1, 180), ("lat2", lat2, 90), ("lon2", lon2, 180)):
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            raise TypeError(f"{name} must be numeric")
        if math.isnan(value) or abs(value) > bound:
            raise ValueError(f"{name} out of range: {value}")
    phi1, phi2 = map(math.radians, (lat1, lat2))
    dphi, dlmb = math.radians(lat2 - lat1), math.radians(lon2 - lon1)
    a = math.sin(dphi / 2) ** 2 + math.cos(phi1) * math.cos(phi2) * math.sin(dlmb / 2) ** 2
    c = 2 * math.atan2(math.sqrt(a), math.sqrt(1 - a))
    return round(EARTH_RADIUS[unit] * c, 3)
""",
)

_add(
    "extract_contacts",
    [
        {"text": "mail bob@x.io or ALICE@corp.com, call +1 (415) 555-0101; order #A-77"},
        {"text": ""},
    ],
    r"""
import re

_EMAIL_RE = re.compile(r"(?P<user>[\w.+-]+)@(?P<domain>[\w-]+\.[\w.]+)", re.IGNORECASE)
_PHONE_RE = re.compile(r"\+?\d[\d\s().-]{7,}\d")

def extract_contacts(text: str, mask: bool = True) -> dict:
    if not text:
        return {"emails": [], "phones": [], "redacted": ""}
    emails = [m.group(0).lower() for m in _EMAIL_RE.finditer(text)]
    domains = {m.groupdict()["domain"].lower() for m in _EMAIL_RE.finditer(text)}
    phones = [re.sub(r"[^\d+]", "", p) for p in _PHONE_RE.findall(text)]
    redacted = _EMAIL_RE.sub(lambda m: m.group("user")[0] + "***@" + m["domain"], text) if mask else text
    order = re.search(r"#([A-Z])-(\d+)", text)
    if (m := order) is not None:
        series, number = m.groups()
    else:
        series = number = None
    return {"emails": emails, "domains": sorted(domains), "phones": phones, "redacted": redacted,
            "order": [series, number], "words": len(re.split(r"\s+", text.strip()))}
""",
)

_add(
    "transform_json",
    [
        {"payload": '{"items": [{"id": 2, "p": 1.5}, {"id": 1, "p": 3}], "meta": null}'},
        {"payload": "{bad"},
        {"payload": "[]"},
    ],
    """
import json
import copy

def transform_json(payload: str, sort_key: str = "id") -> str:
    try:
        data = json.loads(payload)
    except json.JSONDecodeError as e:
        return json.dumps({"error": "Invalid JSON", "detail": e.msg, "pos": e.pos})
    except TypeError as e:
        return json.dumps({"error": str(e)})
    else:
        if not isinstance(data, dict):
            return json.dumps({"error": "Top level must be an object"})
        backup = copy.deepcopy(data)
        items = sorted(data.get("items", []), key=lambda d: d.get(sort_key, 0))
        for it in items:
            it["p"] *= 2
        data["items"] = items
        data.setdefault("meta", {})
        data.pop("meta", None)
        del backup["meta"]
        return json.dumps({"after": data, "before": backup}, ensure_ascii=False, sort_keys=True, indent=1)
    finally:
        pass
""",
)

_add(
    "validate_isbn",
    [{"isbn": "978-0-306-40615-7"}, {"isbn": "0-306-40615-2"}, {"isbn": "123"}],
    '''
class ValidationError(Exception):
    """Raised when the ISBN is malformed."""
    def __init__(self, message, code=None):
        super().__init__(message)
        self.code = code

class _IsbnChecker:
    VALID_LENGTHS = (10, 13)

    def __init__(self, raw):
        self.raw = raw
        self._digits = raw.replace("-", "").replace(" ", "").upper()
        self.checks = 0

    def __repr__(self):
        return f"<IsbnChecker {self._digits}>"

    def __len__(self):
        return len(self._digits)

    @property
    def kind(self):
        return f"ISBN-{len(self)}"

    @staticmethod
    def _weight13(i):
        return 1 if i % 2 == 0 else 3

    def is_valid(self):
        self.checks += 1
        if len(self) not in self.VALID_LENGTHS:
            raise ValidationError(f"Invalid length: {len(self)}", code="LEN")
        if len(self) == 13:
            return sum(int(d) * self._weight13(i) for i, d in enumerate(self._digits)) % 10 == 0
        total = sum((10 - i) * (10 if d == "X" else int(d)) for i, d in enumerate(self._digits))
        return total % 11 == 0

def validate_isbn(isbn: str) -> dict:
    checker = _IsbnChecker(isbn)
    try:
        ok = checker.is_valid()
    except ValidationError as e:
        return {"valid": False, "error": str(e), "code": e.code, "obj": repr(checker)}
    return {"valid": ok, "type": checker.kind, "checks": checker.checks, "obj": str(checker)}
''',
)

_add(
    "schedule_meeting",
    [
        {"attendees": ["ann", "bob"], "duration_minutes": 45},
        {"attendees": [], "duration_minutes": 30},
        {"attendees": ["ann"], "duration_minutes": 500},
    ],
    """
from dataclasses import dataclass, field, asdict, replace
from enum import Enum
from typing import List

class Priority(Enum):
    LOW = 1
    HIGH = 2

@dataclass(order=True)
class Slot:
    start: int
    end: int = field(compare=False, default=0)

    def duration(self) -> int:
        return self.end - self.start

@dataclass
class Calendar:
    owner: str
    busy: List[Slot] = field(default_factory=list)

    def __post_init__(self):
        self.owner = self.owner.title()

    def is_free(self, slot: Slot) -> bool:
        return all(slot.end <= b.start or slot.start >= b.end for b in self.busy)

def schedule_meeting(attendees: List[str], duration_minutes: int, priority: str = "LOW") -> dict:
    if not attendees:
        return {"ok": False, "error": "attendees must not be empty"}
    try:
        prio = Priority[priority.upper()]
    except KeyError:
        return {"ok": False, "error": f"priority must be one of {[p.name for p in Priority]}"}
    busy = {"ann": [Slot(540, 600), Slot(660, 720)], "bob": [Slot(600, 630)]}
    cals = [Calendar(a, busy.get(a, [])) for a in attendees]
    start = 540
    while start + duration_minutes <= 1020:
        cand = Slot(start, start + duration_minutes)
        if all(c.is_free(cand) for c in cals):
            cand = replace(cand, start=cand.start)
            return {"ok": True, "slot": asdict(cand), "time": f"{start // 60:02d}:{start % 60:02d}",
                    "owners": [c.owner for c in cals], "priority": prio.name, "len": cand.duration()}
        start += 15
    return {"ok": False, "error": "no common slot"}
""",
)

_add(
    "running_statistics",
    [{"values": [3, 1, 4, 1, 5, 9, 2, 6]}, {"values": []}],
    """
import itertools
import statistics
from functools import reduce

def running_statistics(values: list, window: int = 3) -> dict:
    def sliding(seq, n):
        it = iter(seq)
        win = list(itertools.islice(it, n))
        if len(win) == n:
            yield tuple(win)
        for x in it:
            win = win[1:] + [x]
            yield tuple(win)

    def evens():
        yield from (v for v in values if v % 2 == 0)

    if len(values) == 0:
        return {"error": "values must contain at least one number"}
    first, *middle, last = values
    groups = {k: list(g) for k, g in itertools.groupby(sorted(values), key=lambda v: v % 2 == 0)}
    return {
        "moving_avg": [round(statistics.mean(w), 3) for w in sliding(values, window)],
        "cumsum": list(itertools.accumulate(values)),
        "stdev": round(statistics.stdev(values), 4), "median": statistics.median(values),
        "product": reduce(lambda a, b: a * b, values, 1),
        "evens": list(evens()), "groups": {str(k): v for k, v in groups.items()},
        "ends": [first, last], "middle_len": len(middle),
        "pairs": [a * b for a, b in zip(values, values[1:])],
    }
""",
)

_add(
    "parse_command",
    [
        {"command": "move 3 up"},
        {"command": {"type": "circle", "r": 2}},
        {"command": [1, 2, 3]},
        {"command": "stop"},
        {"command": 7},
    ],
    '''
def parse_command(command) -> dict:
    """Interpret a command given in one of several shapes."""
    if isinstance(command, str):
        command = command.split()
    match command:
        case ["move", n, ("up" | "down") as direction] if n.isdigit():
            sign = 1 if direction == "up" else -1
            return {"action": "move", "dy": sign * int(n)}
        case ["stop"]:
            return {"action": "stop"}
        case {"type": "circle", "r": (int() | float()) as r, **rest}:
            return {"action": "draw", "area": round(3.14159 * r ** 2, 2), "extra": rest}
        case [int(x), int(y), *others]:
            return {"action": "point", "x": x, "y": y, "others": others}
        case None | True | False:
            return {"action": "noop"}
        case int(value) if value > 5:
            return {"action": "number", "value": value}
        case _:
            return {"error": "unrecognised"}
''',
)

_add(
    "count_change_ways",
    [{"amount": 100, "coins": [1, 5, 10, 25, 50]}, {"amount": -1, "coins": [1]}],
    """
from functools import lru_cache

def count_change_ways(amount: int, coins: list = None) -> dict:
    coins = tuple(sorted(set(coins or [1, 5, 10, 25]), reverse=True))
    calls = 0

    @lru_cache(maxsize=None)
    def _ways(remaining: int, idx: int) -> int:
        nonlocal calls
        calls += 1
        if remaining == 0:
            return 1
        if remaining < 0 or idx >= len(coins):
            return 0
        return _ways(remaining - coins[idx], idx) + _ways(remaining, idx + 1)

    assert isinstance(amount, int), "amount must be int"
    if amount < 0:
        return {"error": "amount must be >= 0"}
    return {"ways": _ways(amount, 0), "coins": list(coins), "calls": calls}
""",
)

_add(
    "loan_amortization",
    [
        {"principal": 200000, "annual_rate": 6.5, "years": 30},
        {"principal": 0, "annual_rate": 5, "years": 1},
        {"principal": 1000, "annual_rate": 0, "years": 1},
    ],
    """
def loan_amortization(principal: float, annual_rate: float, years: int, extra_payment: float = 0.0) -> dict:
    try:
        principal = float(principal); annual_rate = float(annual_rate); years = int(years)
        if principal <= 0: raise ValueError("principal must be positive")
        if not (0 <= annual_rate <= 100): raise ValueError("annual_rate must be between 0 and 100")
    except (TypeError, ValueError) as e:
        return {"error": "Invalid input: %s" % e}
    r = annual_rate / 100 / 12
    n = years * 12
    payment = principal / n if r == 0 else principal * r * (1 + r) ** n / ((1 + r) ** n - 1)
    balance, total_interest, month = principal, 0.0, 0
    schedule = []
    while balance > 0.005 and month < n:
        month += 1
        interest = balance * r
        princ = min(payment + extra_payment - interest, balance)
        balance -= princ
        total_interest += interest
        if month <= 3 or month % 60 == 0:
            schedule.append((month, round(princ, 2), round(interest, 2), round(max(balance, 0), 2)))
    return {"monthly_payment": round(payment, 2), "total_interest": round(total_interest, 2),
            "months": month, "schedule": schedule, "summary": "{:,.2f} over {} months".format(payment, month)}
""",
)

_add(
    "get_stock_quote",
    [{"symbol": "AAPL"}, {"symbol": "ZZZZ", "days": 3}, {"symbol": "!!"}],
    '''
import hashlib
import random

def get_stock_quote(symbol: str, days: int = 1) -> dict:
    """Simulated but deterministic quote: the symbol seeds the generator."""
    if not isinstance(symbol, str) or not symbol.isalpha() or len(symbol) > 5:
        return {"success": False, "error": {"code": "INVALID_SYMBOL", "message": "symbol must be 1-5 letters"}}
    known = {"AAPL": ("Apple Inc.", 189.5), "MSFT": ("Microsoft Corp.", 415.1)}
    digest = hashlib.md5(symbol.upper().encode("utf-8")).hexdigest()
    rng = random.Random(int(digest[:8], 16))
    name, price = known.get(symbol.upper(), (f"{symbol.title()} Holdings", 20 + int(digest[8:12], 16) % 500))
    history = []
    for d in range(days):
        price = round(price * (1 + rng.uniform(-0.02, 0.02)), 2)
        history.append({"day": d, "close": price, "volume": rng.randint(10_000, 5_000_000)})
    return {"success": True, "name": name, "history": history, "id": digest[:6], "sector": rng.choice(["Tech", "Energy", "Health"])}
''',
)

_add(
    "create_booking",
    [{"guest": "Ann", "nights": 2}, {"guest": "Bob", "nights": 0}, {"guest": "Bob", "nights": 1}],
    """
import uuid, time, random
from datetime import datetime, timedelta, date

_BOOKINGS = {}
_counter = 0

def create_booking(guest: str, nights: int) -> dict:
    global _counter
    if nights < 1:
        return {"status": "failed", "error": "nights must be >= 1", "existing": len(_BOOKINGS)}
    _counter += 1
    booking_id = str(uuid.uuid4())
    now = datetime.now()
    entry = {"seq": _counter, "guest": guest, "created": now.strftime("%Y-%m-%d %H:%M:%S"), "ts": int(time.time()),
             "checkout": (date.today() + timedelta(days=nights)).isoformat(),
             "confirmation": "".join(random.choices("ABCDEFGH23456789", k=6)), "utc": datetime.utcnow().isoformat()}
    _BOOKINGS[booking_id] = entry
    return {"status": "confirmed", "booking_id": booking_id, **entry, "total": len(_BOOKINGS)}
""",
    nondet=True,
)

_add(
    "update_inventory",
    [
        {"item": "widget", "quantity": 5, "action": "remove"},
        {"item": "widget", "quantity": 4, "action": "add"},
        {"item": "gadget", "quantity": 99, "action": "remove"},
        {"item": "gizmo", "quantity": 1, "action": "add"},
        {"item": "gizmo", "quantity": 1, "action": "purge"},
    ],
    """
INVENTORY = {"widget": {"stock": 10, "log": []}, "gadget": {"stock": 3, "log": []}}
STATS = {"ops": 0, "by_action": {}}

def update_inventory(item: str, quantity: int, action: str = "add") -> dict:
    STATS["ops"] += 1
    STATS["by_action"][action] = STATS["by_action"].get(action, 0) + 1
    if action == "purge":
        removed = INVENTORY.pop(item, None)
        return {"purged": removed is not None, "stats": STATS}
    if item not in INVENTORY:
        INVENTORY[item] = {"stock": 0, "log": []}
    entry = INVENTORY[item]
    if action == "remove":
        if entry["stock"] < quantity:
            return {"ok": False, "error": f"Insufficient stock for {item}: {entry['stock']} < {quantity}"}
        entry["stock"] -= quantity
    elif action == "add":
        entry["stock"] += quantity
    entry["log"].append([action, quantity])
    entry["log"][-1:] = [[action.upper(), quantity]]
    return {"ok": True, "item": item, **{k: v for k, v in entry.items() if k != "x"}, "ops": STATS["ops"]}
""",
)

_add(
    "format_report",
    [{"rows": [["North", 1200.5, 3], ["South", 80, 11]]}, {"rows": [["bad", "x", 1]]}],
    r'''
def format_report(rows, title="Quarterly Report", width=40, **options):
    """Plain text table using every formatting style LLMs like."""
    lines = [title.center(width, "="), "{:<12}|{:>12}|{:^8}".format("Region", "Revenue", "Units")]
    sep = options.get("sep", "-")
    lines.append(sep * width)
    total = 0.0
    for i, row in enumerate(rows):
        region, revenue, units = row
        try:
            revenue = float(revenue)
        except (TypeError, ValueError):
            return "ERROR row %d: %r is not numeric" % (i, revenue)
        total += revenue
        lines.append("{region:<12}|{rev:>12,.2f}|{units:^8d}".format(region=region, rev=revenue, units=units))
    lines.append(f"{'TOTAL':<12}|{total:>12,.2f}|{sum(r[2] for r in rows):^8}")
    lines.append("%-12s|%11.1f%%" % ("Share", 100.0))
    lines.append(f"{total=:.1f} {len(rows)!s:>3} {title!r:.8}")
    return "\n".join(lines)
''',
)

_add(
    "merge_profiles",
    [
        {
            "base": {"a": 1, "tags": ["x"], "n": {"k": 1}},
            "override": {"tags": ["y", "x"], "n": {"z": 2}},
        },
        {"base": [], "override": {}},
    ],
    """
from typing import Any, Mapping, Union, Iterable, Callable, TypedDict, NamedTuple, Tuple

class Diff(NamedTuple):
    added: int
    changed: int

class Options(TypedDict, total=False):
    deep: bool

def merge_profiles(base: dict, override: dict, *extra: dict, deep: bool = True) -> Union[dict, str]:
    if not isinstance(base, dict):
        return "TypeError: base must be dict, not " + type(base).__name__
    def merge(a: Mapping[str, Any], b: Mapping[str, Any]) -> dict:
        out = {**a}
        for k, v in b.items():
            if k in out and isinstance(out[k], dict) and isinstance(v, dict) and deep:
                out[k] = merge(out[k], v)
            elif isinstance(out.get(k), list) and isinstance(v, list):
                out[k] = out[k] + [x for x in v if x not in out[k]]
            else:
                out[k] = v
        return out
    result = base
    for layer in (override, *extra):
        result = merge(result, layer)
    a, b = set(base), set(result)
    diff = Diff(added=len(b - a), changed=len({k for k in a & b if base[k] != result[k]}))
    opts: Options = {"deep": deep}
    merged = base | {"merged": True}
    return {"result": result, "diff": list(diff), "fields": list(diff._fields), "opts": opts, "m": merged["merged"]}
""",
)

_add(
    "shortest_route",
    [
        {"origin": "A", "destination": "E"},
        {"origin": "A", "destination": "Q"},
        {"origin": "A", "destination": "D", "avoid": ["B"]},
    ],
    """
import heapq
from math import inf

def shortest_route(origin: str, destination: str, avoid: list = None) -> dict:
    graph = {"A": {"B": 4, "C": 2}, "B": {"E": 3, "D": 2}, "C": {"B": 1, "D": 8}, "D": {"E": 1}, "E": {}}
    blocked = frozenset(avoid or ())
    if origin not in graph or destination not in graph:
        return {"error": "unknown node", "nodes": [*graph.keys()]}
    dist = {node: inf for node in graph}
    prev = dict.fromkeys(graph)
    dist[origin] = 0
    queue = [(0, origin)]
    while queue:
        d, node = heapq.heappop(queue)
        if d > dist[node]:
            continue
        if node == destination:
            break
        for nxt, w in graph[node].items():
            if nxt in blocked:
                continue
            if (nd := d + w) < dist[nxt]:
                dist[nxt], prev[nxt] = nd, node
                heapq.heappush(queue, (nd, nxt))
    path, cur = [], destination
    while cur is not None:
        path.insert(0, cur)
        cur = prev[cur]
    return {"distance": dist[destination] if dist[destination] < inf else -1, "path": path[::1], "hops": len(path) - 1}
""",
)

_add(
    "safe_calculate",
    [
        {"expression": "2 * (3 + 4) ** 2 / 7"},
        {"expression": "sqrt(16) + pi"},
        {"expression": "__import__('os').system('id')"},
        {"expression": "1/0"},
    ],
    """
import ast
import operator
import math

_OPS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
        ast.Pow: operator.pow, ast.Mod: operator.mod, ast.USub: operator.neg}
_FUNCS = {"sqrt": math.sqrt, "abs": abs, "round": round}
_CONSTS = {"pi": math.pi, "e": math.e}

def safe_calculate(expression: str, precision: int = 6) -> dict:
    def _eval(node):
        if isinstance(node, ast.Expression):
            return _eval(node.body)
        if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
            return node.value
        if isinstance(node, ast.BinOp) and type(node.op) in _OPS:
            return _OPS[type(node.op)](_eval(node.left), _eval(node.right))
        if isinstance(node, ast.UnaryOp) and type(node.op) in _OPS:
            return _OPS[type(node.op)](_eval(node.operand))
        if isinstance(node, ast.Name) and node.id in _CONSTS:
            return _CONSTS[node.id]
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _FUNCS:
            return _FUNCS[node.func.id](*[_eval(a) for a in node.args])
        raise ValueError(f"Unsupported expression element: {node.__class__.__name__}")
    try:
        value = _eval(ast.parse(expression, mode="eval"))
        return {"success": True, "result": round(value, precision)}
    except ZeroDivisionError:
        return {"success": False, "error": "Division by zero"}
    except (SyntaxError, ValueError, TypeError) as exc:
        return {"success": False, "error": f"{type(exc).__name__}: {exc}"}
""",
)

_add(
    "encode_message",
    [
        {"message": "Hello, World!", "method": "base64"},
        {"message": "Hello", "method": "caesar", "shift": 3},
        {"message": "a b&c", "method": "url"},
        {"message": "x", "method": "nope"},
        {"message": "hi", "method": "hex"},
    ],
    '''
import base64
import string
import urllib.parse
from textwrap import dedent, shorten

def encode_message(message: str, method: str = "base64", shift: int = 13) -> str:
    handlers = {}

    def register(name):
        def wrapper(func):
            handlers[name] = func
            return func
        return wrapper

    @register("base64")
    def _b64(s):
        return base64.b64encode(s.encode()).decode("ascii")

    @register("caesar")
    def _caesar(s):
        lower, upper = string.ascii_lowercase, string.ascii_uppercase
        table = str.maketrans(lower + upper, lower[shift:] + lower[:shift] + upper[shift:] + upper[:shift])
        return s.translate(table)

    @register("url")
    def _url(s):
        return urllib.parse.quote_plus(s) + "?" + urllib.parse.urlencode({"q": s})

    @register("hex")
    def _hex(s):
        buf = bytearray()
        for ch in s:
            buf.append(ord(ch) ^ 0x2A)
        return bytes(buf).hex() + ":" + format(len(buf), "04b") + ":" + hex(255)

    if method not in handlers:
        return dedent(f"""
            Unknown method: {method}
            Supported: {", ".join(sorted(handlers))}
        """).strip()
    return shorten(handlers[method](message), width=200)
''',
)

_add(
    "transfer_funds",
    [
        {"src": "alice", "dst": "bob", "amount": 30},
        {"src": "alice", "dst": "bob", "amount": 300},
        {"src": "x", "dst": "bob", "amount": 1},
        {"src": "alice", "dst": "bob", "amount": "5"},
    ],
    """
import contextlib
import logging

logger = logging.getLogger(__name__)

class BankError(Exception): pass
class InsufficientFunds(BankError):
    def __str__(self):
        return "insufficient funds: " + ", ".join(str(a) for a in self.args)

class Account:
    registry = {}
    def __init__(self, owner, balance=0):
        self.owner, self.balance = owner, balance
        self.history = []
        Account.registry[owner] = self
    @classmethod
    def get(cls, owner):
        try:
            return cls.registry[owner]
        except KeyError as e:
            raise BankError(f"no such account: {e.args[0]}") from e
    def __iadd__(self, x):
        self.balance += x
        self.history.append(("+", x))
        return self
    def __eq__(self, other):
        return isinstance(other, Account) and self.owner == other.owner
    def __hash__(self):
        return hash(self.owner)

Account("alice", 100); Account("bob", 50)

class _Transaction:
    def __init__(self, *accounts): self.accounts = accounts
    def __enter__(self):
        self.saved = [a.balance for a in self.accounts]
        return self
    def __exit__(self, exc_type, exc, tb):
        if exc_type is not None:
            for a, b in zip(self.accounts, self.saved):
                a.balance = b
        return False

def transfer_funds(src: str, dst: str, amount: float) -> dict:
    try:
        a, b = Account.get(src), Account.get(dst)
        with _Transaction(a, b) as tx:
            b += amount
            if a.balance < amount:
                raise InsufficientFunds(src, amount)
            a.balance -= amount
    except BankError as e:
        logger.warning("transfer failed: %s", e)
        return {"ok": False, "error": str(e), "kind": type(e).__name__, "cause": repr(e.__cause__)}
    except Exception as e:
        return {"ok": False, "error": f"unexpected {type(e).__name__}"}
    with contextlib.suppress(KeyError):
        Account.registry["nobody"]
    return {"ok": True, "balances": {k: v.balance for k, v in Account.registry.items()}, "same": a == a, "n": len({a, b})}
""",
)

_add(
    "rank_candidates",
    [
        {
            "candidates": [
                {"name": "Li", "exp": 5, "skills": ["py", "go"]},
                {"name": "Bo", "exp": 9, "skills": ["js"]},
                {"name": "", "exp": 1},
            ],
            "required_skills": ["py"],
        },
        {"candidates": None},
    ],
    '''
def rank_candidates(candidates: "list[dict]", required_skills: "list[str] | None" = None,
                    weights: "dict[str, float]" = None) -> "list[dict]":
    """Rank candidates with a weighted score.

    >>> rank_candidates([])
    []
    """
    if candidates is None:
        return {"error": "candidates is required"}
    weights = weights or {"skills": 0.7, "experience": 0.3}
    required = [s.lower() for s in (required_skills or [])]
    max_exp = max((c.get("exp", 0) for c in candidates), default=1) or 1
    ranked = []
    for position, cand in enumerate(candidates):
        name = cand.get("name") or f"candidate_{position}"
        skills = set(map(str.lower, cand.get("skills", [])))
        hit = len([s for s in required if s in skills])
        score = weights["skills"] * (hit / len(required) if required else 1) + weights["experience"] * cand.get("exp", 0) / max_exp
        ranked.append({"name": name, "score": round(score, 3), "missing": [s for s in required if s not in skills]})
    ranked = sorted(ranked, key=lambda r: (r["score"], r["name"]), reverse=True)
    for i in range(len(ranked)):
        ranked[i]["rank"] = i + 1
        ranked[i]["percentile"] = round(100 * (1 - i / len(ranked)), 1)
    print(f"ranked {len(ranked)} candidates")
    best = next((r for r in ranked if not r["missing"]), None)
    return {"ranked": ranked, "best": best, "any_full": any(not r["missing"] for r in ranked),
            "lookup": dict(zip([r["name"] for r in ranked], range(1, len(ranked) + 1)))}

if __name__ == "__main__":
    print(rank_candidates([{"name": "Test", "exp": 1}]))
''',
)

_add(
    "solve_knapsack",
    [
        {"weights": [1, 3, 4, 5], "values": [1, 4, 5, 7], "capacity": 7},
        {"weights": [1], "values": [], "capacity": 1},
    ],
    """
from typing import List, Tuple
import sys

def solve_knapsack(weights: List[int], values: List[int], capacity: int) -> Tuple[int, List[int]]:
    n: int = len(weights)
    if n != len(values):
        return {"error": "weights and values must have equal length", "py": sys.version_info.major >= 3}
    dp: List[List[int]] = [[0] * (capacity + 1) for _ in range(n + 1)]
    for i in range(1, n + 1):
        w, v = weights[i - 1], values[i - 1]
        for c in range(capacity + 1):
            dp[i][c] = dp[i - 1][c]
            if w <= c and dp[i - 1][c - w] + v > dp[i][c]:
                dp[i][c] = dp[i - 1][c - w] + v
    chosen: List[int] = []
    c = capacity
    for i in reversed(range(1, n + 1)):
        if dp[i][c] != dp[i - 1][c]:
            chosen.append(i - 1)
            c -= weights[i - 1]
    matrix = [list(col) for col in zip(*dp)]
    flags = 0
    for j in chosen:
        flags |= 1 << j
    return {"best": dp[n][capacity], "items": chosen[::-1], "mask": bin(flags), "t": len(matrix), "is_opt": True if chosen else False}
""",
)
