class ToolError(Exception):
    """An expected failure; the server reports it as an MCP error result."""

    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


def find_plants(state, *, name):
    rows = [p for p in state["plants"].values() if name.lower() in p["name"].lower()]
    return {"plants": [{k: p[k] for k in ("id", "name", "house_id", "bench")} for p in rows]}


def get_care_sheet(state, *, plant_id):
    if plant_id not in state["plants"]:
        raise ToolError("not_found", "no such plant")
    sheet = state["care_sheets"][state["plants"][plant_id]["sheet_id"]]
    keys = ("air_max_c", "air_min_c", "humidity_min_pct", "light")
    return {k: sheet[k] for k in keys}


def list_sensors(state, *, house_id, kind, bench=None):
    if house_id not in state["houses"]:
        raise ToolError("not_found", "no such house")
    rows = [
        s
        for s in state["sensors"].values()
        if s["house_id"] == house_id
        and s["kind"] == kind
        and (bench is None or s["bench"] == bench)
    ]
    return {"sensors": [{k: s[k] for k in ("id", "bench", "mounted")} for s in rows]}


def read_sensor(state, *, sensor_id):
    s = state["sensors"].get(sensor_id)
    if s is None:
        raise ToolError("not_found", "no such sensor")
    return {k: s[k] for k in ("value", "unit", "taken_at")}


def open_vents(state, *, house_id, percent):
    h = state["houses"].get(house_id)
    if h is None:
        raise ToolError("not_found", "no such house")
    was = h["vents_pct"]
    h["vents_pct"] = percent
    return {"house": h["name"], "was_pct": was, "vents_pct": percent}


def run_mist(state, *, house_id, bench, minutes):
    h = state["houses"].get(house_id)
    if h is None or bench not in h["benches"]:
        raise ToolError("not_found", "no such house or bench")
    if minutes * h["litres_per_minute"] > h["tank_litres"]:
        raise ToolError("precondition_failed", "the tank does not hold enough water")
    h["tank_litres"] = round(h["tank_litres"] - minutes * h["litres_per_minute"], 1)
    key = f"MR-{80 + len(state['mist_runs']) + 1}"
    state["mist_runs"][key] = {"id": key, "house_id": house_id, "bench": bench, "minutes": minutes}
    return {"run_id": key, "tank_litres": h["tank_litres"]}


def add_note(state, *, plant_id, note):
    if plant_id not in state["plants"]:
        raise ToolError("not_found", "no such plant")
    key = f"NT-{len(state['notes']) + 1}"
    state["notes"][key] = {"id": key, "plant_id": plant_id, "note": note}
    notes = [n for n in state["notes"].values() if n["plant_id"] == plant_id]
    return {"note_id": key, "of_plant": len(notes)}


def get_duty_gardener(state, *, house_id, on):
    d = next(
        (d for d in state["duty"].values() if d["house_id"] == house_id and d["on"] == on), None
    )
    if d is None:
        raise ToolError("not_found", "nobody is on duty there that day")
    return {"name": d["name"], "extension": d["extension"]}
