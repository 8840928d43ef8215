class ToolError(Exception):
    """An expected failure; the server reports it as an MCP error result."""

    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


def find_production(state, *, title):
    rows = [p for p in state["productions"].values() if title.lower() in p["title"].lower()]
    return {"productions": [{k: p[k] for k in ("id", "title", "season")} for p in rows]}


def list_performances(state, *, production_id, town=None):
    if production_id not in state["productions"]:
        raise ToolError("not_found", "no such production")
    halls = state["halls"]
    rows = [
        p
        for p in state["performances"].values()
        if p["production_id"] == production_id
        and (town is None or halls[p["hall_id"]]["town"].lower() == town.lower())
    ]
    rows.sort(key=lambda p: (p["on"], p["starts"], p["id"]))
    keys = ("id", "hall_id", "on", "starts", "ends")
    return {"performances": [{k: p[k] for k in keys} for p in rows]}


def get_hall(state, *, hall_id):
    h = state["halls"].get(hall_id)
    if h is None:
        raise ToolError("not_found", "no such hall")
    return {k: h[k] for k in ("id", "name", "town", "seats", "station", "walk_min")}


def list_crew(state, *, performance_id):
    p = state["performances"].get(performance_id)
    if p is None:
        raise ToolError("not_found", "no such performance")
    rows = [c for c in state["crew"].values() if c["production_id"] == p["production_id"]]
    return {"crew": [{"name": c["name"], "task": c["task"]} for c in rows]}


def find_station(state, *, name):
    rows = [s for s in state["stations"].values() if name.lower() in s["name"].lower()]
    return {"stations": [{k: s[k] for k in ("code", "name", "town")} for s in rows]}


def list_trains(state, *, origin, destination, on, not_before=None):
    if origin not in state["stations"] or destination not in state["stations"]:
        raise ToolError("not_found", "no such station")
    rows = [
        t
        for t in state["trains"].values()
        if t["origin"] == origin
        and t["destination"] == destination
        and t["departs"][:10] == on
        and (not_before is None or t["departs"][11:16] >= not_before)
    ]
    rows.sort(key=lambda t: (t["departs"], t["id"]))
    return {"trains": [{k: t[k] for k in ("id", "departs", "arrives", "changes")} for t in rows]}


def get_fare(state, *, train_id, ticket):
    t = state["trains"].get(train_id)
    if t is None:
        raise ToolError("not_found", "no such train")
    share = {"full": 1.0, "reduced": 0.5}[ticket]
    return {"train_id": train_id, "fare_eur": round(t["fare_eur"] * share, 2)}


def reserve_seat(state, *, train_id, passenger):
    t = state["trains"].get(train_id)
    if t is None:
        raise ToolError("not_found", "no such train")
    if t["seats_left"] < 1:
        raise ToolError("precondition_failed", "no seat is left on that train")
    t["seats_left"] = t["seats_left"] - 1
    key = f"RV-{900 + 7 * (len(state['reservations']) + 1)}"
    seat = f"{3 + t['seats_left'] % 9}{'ABCD'[t['seats_left'] % 4]}"
    state["reservations"][key] = {
        "id": key,
        "train_id": train_id,
        "passenger": passenger,
        "seat": seat,
    }
    return {"reservation": key, "departs": t["departs"], "seat": seat}
