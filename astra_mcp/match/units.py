"""Units of measure and currencies: names, dimensions, exact factors.

A small closed table instead of a library: what people write behind a number in answers. Symbols are
looked up with their case first (mW is not MW), names without. An unknown name is no unit.
Factors are exact decimals to the SI unit of the dimension, or to the name in parentheses below.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import Final

from astra_mcp.match.locales import CURRENCIES, currencies

CURRENCY: Final = "currency"
RATIO: Final = "ratio"


@dataclass(frozen=True)
class Unit:
    """One unit.

    Attributes:
        dimension: What it measures; only units of one dimension convert.
        factor: Multiply by it, then add `offset`, to come to the base unit.
        offset: Of temperatures.
        codes: Of currencies: the ISO 4217 codes that the name can mean.
    """

    dimension: str
    factor: Decimal = Decimal(1)
    offset: Decimal = Decimal(0)
    codes: frozenset[str] = frozenset()

    def same_as(self, other: Unit) -> bool:
        """Whether a number in one is the same number in the other."""
        if self.dimension == CURRENCY == other.dimension:
            return bool(self.codes & other.codes)
        return (self.dimension, self.factor, self.offset) == (
            other.dimension,
            other.factor,
            other.offset,
        )

    def convert(self, value: Decimal, to: Unit) -> Decimal | None:
        """`value` of this unit in `to`; None when they do not convert."""
        if self.same_as(to):
            return value
        if self.dimension != to.dimension or self.dimension == CURRENCY:
            return None
        return (value * self.factor + self.offset - to.offset) / to.factor


# dimension: "factor[+offset] name name_with_spaces ..." ; case matters for names with a capital
_TABLE: Final[dict[str, tuple[str, ...]]] = {
    "length": (
        "1 m meter meters metre metres Meter mètre mètres metro metros 米 公尺",
        "1000 km kilometer kilometers kilometre kilometres Kilometer kilomètre kilomètres "
        "kilómetro kilómetros 公里 千米",
        "0.01 cm centimeter centimeters centimetre centimetres Zentimeter centimètres centímetros "
        "厘米",
        "0.001 mm millimeter millimeters millimetre millimetres Millimeter 毫米",
        "0.000001 µm μm micrometer micrometers micrometre micrometres micron microns",
        "1609.344 mi mile miles Meile Meilen milla millas 英里",
        "1852 nmi nautical_mile nautical_miles Seemeile Seemeilen 海里",
        "0.9144 yd yard yards",
        "0.3048 ft foot feet Fuß 英尺",
        "0.0254 in inch inches Zoll 英寸",
    ),
    "mass": (
        "1 kg kgs kilo kilos kilogram kilograms kilogramme kilogrammes Kilogramm kilogramo "
        "kilogramos 公斤 千克",
        "0.001 g gram grams gramme grammes Gramm gramo gramos 克",
        "0.000001 mg milligram milligrams Milligramm 毫克",
        "1000 t tonne tonnes metric_ton metric_tons Tonne Tonnen tonelada toneladas 吨",
        "0.45359237 lb lbs pound pounds 磅",
        "0.028349523125 oz ounce ounces 盎司",
    ),
    "time": (
        "1 s sec secs second seconds Sekunde Sekunden seconde secondes segundo segundos 秒 秒钟",
        "0.001 ms millisecond milliseconds Millisekunden 毫秒",
        "60 min mins minute minutes Minute Minuten minuto minutos 分钟",
        "3600 h hr hrs hour hours Stunde Stunden heure heures hora horas 小时",
        "86400 d day days Tag Tage Tagen jour jours día días 天 日",
        "604800 week weeks Woche Wochen semaine semaines semana semanas 周 星期",
    ),
    "calendar": (
        "1 month months Monat Monate Monaten mois mes meses 个月",
        "12 year years yr yrs Jahr Jahre Jahren an ans année années año años 年",
    ),
    "area": (
        "1 m² m2 sqm square_meter square_meters square_metre square_metres Quadratmeter "
        "平方米 平米",
        "1000000 km² km2 square_kilometer square_kilometers square_kilometre square_kilometres "
        "Quadratkilometer 平方公里",
        "0.0001 cm² cm2",
        "10000 ha hectare hectares Hektar 公顷",
        "4046.8564224 acre acres 英亩",
        "0.09290304 ft² ft2 sqft sq_ft square_foot square_feet",
        "2589988.110336 mi² square_mile square_miles",
    ),
    "volume": (
        "1 l L liter liters litre litres Liter litro litros 升",
        "0.001 ml mL milliliter milliliters millilitre millilitres Milliliter 毫升",
        "0.01 cl cL",
        "0.1 dl dL",
        "100 hl hL",
        "1000 m³ m3 cubic_meter cubic_meters cubic_metre cubic_metres Kubikmeter 立方米",
        "0.001 cm³ cm3 cc",
        "3.785411784 gal gallon gallons",
    ),
    "speed": (
        "1 m/s mps metres_per_second meters_per_second 米每秒",
        "0.2777777777777777777777777777777777777778 km/h kph kmh kilometres_per_hour "
        "kilometers_per_hour Stundenkilometer 公里每小时",
        "0.44704 mph miles_per_hour",
        "0.5144444444444444444444444444444444444444 kn knot knots Knoten 节",
    ),
    "temperature": (
        "1+273.15 °C C degrees_Celsius degree_Celsius degrees_C celsius Grad_Celsius "
        "degrés_Celsius grados_Celsius 摄氏度 ℃",
        "0.5555555555555555555555555555555555555556+255.3722222222222222222222222222222222222222 "
        "°F F degrees_Fahrenheit degree_Fahrenheit degrees_F fahrenheit 华氏度 ℉",
        "1+0 K kelvin kelvins",
    ),
    "data": (
        "1 B byte bytes Byte 字节",
        "1000 kB KB kilobyte kilobytes",
        "1000000 MB megabyte megabytes",
        "1000000000 GB gigabyte gigabytes",
        "1000000000000 TB terabyte terabytes",
        "1024 KiB kibibyte kibibytes",
        "1048576 MiB mebibyte mebibytes",
        "1073741824 GiB gibibyte gibibytes",
        "1099511627776 TiB tebibyte tebibytes",
        "0.125 bit bits",
    ),
    "bitrate": (
        "1 bit/s bps",
        "1000 kbit/s kbps Kbps",
        "1000000 Mbit/s Mbps",
        "1000000000 Gbit/s Gbps",
    ),
    "energy": (
        "1 J joule joules Joule",
        "1000 kJ kilojoule kilojoules",
        "1000000 MJ megajoule megajoules",
        "3600 Wh watt_hour watt_hours watt-hours",
        "3600000 kWh kilowatt_hour kilowatt_hours kilowatt-hours Kilowattstunden 千瓦时 度电",
        "3600000000 MWh megawatt_hours megawatt-hours",
        "4.184 cal calorie calories",
        "4184 kcal kilocalorie kilocalories Kilokalorien 千卡 大卡",
    ),
    "power": (
        "1 W watt watts Watt 瓦",
        "0.001 mW milliwatt milliwatts",
        "1000 kW kilowatt kilowatts Kilowatt 千瓦",
        "1000000 MW megawatt megawatts Megawatt 兆瓦",
        "1000000000 GW gigawatt gigawatts",
    ),
    "pressure": (
        "1 Pa pascal pascals",
        "100 hPa mbar hectopascal hectopascals millibar",
        "1000 kPa kilopascal kilopascals",
        "100000 bar bars",
    ),
    "frequency": (
        "1 Hz hertz",
        "1000 kHz kilohertz",
        "1000000 MHz megahertz",
        "1000000000 GHz gigahertz",
    ),
    "voltage": ("1 V volt volts Volt", "1000 kV kilovolt kilovolts", "0.001 mV millivolt"),
    "current": ("1 A amp amps ampere amperes Ampere", "0.001 mA milliamp milliamps"),
    "angle": ("1 ° degree degrees deg Grad degré degrés grado grados 度",),
    RATIO: (
        "0.01 % percent per_cent pct Prozent pour_cent por_ciento",
        "0.001 ‰ permille Promille",
        "0.0001 bp basis_point basis_points",
    ),
}


Units = tuple[Unit, ...]


@lru_cache(maxsize=1)
def _tables() -> tuple[dict[str, Units], dict[str, Units]]:
    """What each exact name can mean, and each caseless name where case is no matter."""
    exact: dict[str, Units] = {}
    for dimension, rows in _TABLE.items():
        for row in rows:
            size, *names = row.split()
            factor, _, offset = size.partition("+")
            unit = Unit(dimension, Decimal(factor), Decimal(offset or 0))
            for name in names:
                spelled = name.replace("_", " ")
                exact[spelled] = (*exact.get(spelled, ()), unit)
    for name, codes in currencies().items():
        exact[name] = (*exact.get(name, ()), Unit(CURRENCY, codes=codes))
    caseless: dict[str, Units | None] = {}
    for name, units in exact.items():
        key = name.casefold()
        known = caseless.get(key, units)
        caseless[key] = units if known == units else None
    for code in CURRENCIES:
        caseless.setdefault(code.casefold(), exact[code])
    return exact, {name: units for name, units in caseless.items() if units is not None}


def units_of(name: str) -> Units:
    """What a name or symbol can mean: mostly one unit, for "pounds" two; empty when it is no unit.

    A name of which case alone decides ("mw") is none.
    """
    exact, caseless = _tables()
    return exact.get(name) or caseless.get(name.casefold(), ())
