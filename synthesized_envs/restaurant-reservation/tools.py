class ToolError(Exception):
    """An expected failure; the server reports it as an MCP error result."""

    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


def find_restaurant(state, *, name):
    rows = [r for r in state["restaurants"].values() if name.lower() in r["name"].lower()]
    return {"restaurants": [{k: r[k] for k in ("id", "name", "street")} for r in rows]}


def list_tables(state, *, restaurant_id, date, time):
    if restaurant_id not in state["restaurants"]:
        raise ToolError("not_found", "no such restaurant")
    taken = {r["table_id"] for r in state["reservations"].values() if r["date"] == date and r["time"] == time}
    rows = [t for t in state["tables"].values() if t["restaurant_id"] == restaurant_id and t["id"] not in taken]
    return {"tables": [{k: t[k] for k in ("id", "seats", "step_free", "room")} for t in rows]}


def create_reservation(state, *, table_id, date, time, party_size, name):
    t = state["tables"].get(table_id)
    if t is None:
        raise ToolError("not_found", "no such table")
    if party_size > t["seats"]:
        raise ToolError("limit_exceeded", "the table is too small for that party")
    if any(r["table_id"] == table_id and r["date"] == date and r["time"] == time for r in state["reservations"].values()):
        raise ToolError("conflict", "the table is taken at that time")
    code = f"RS-{5100 + 13 * (len(state['reservations']) + 1)}"
    state["reservations"][code] = {"id": code, "table_id": table_id, "date": date, "time": time,
                                   "party_size": party_size, "name": name}
    return {"code": code, "table_id": table_id}


def join_waitlist(state, *, restaurant_id, date, party_size):
    if restaurant_id not in state["restaurants"]:
        raise ToolError("not_found", "no such restaurant")
    key = f"WL-{len(state['waitlist']) + 1}"
    state["waitlist"][key] = {"id": key, "restaurant_id": restaurant_id, "date": date, "party_size": party_size}
    return {"position": sum(w["restaurant_id"] == restaurant_id and w["date"] == date for w in state["waitlist"].values())}


def get_menu(state, *, restaurant_id, course=None):
    if restaurant_id not in state["restaurants"]:
        raise ToolError("not_found", "no such restaurant")
    rows = [d for d in state["dishes"].values()
            if d["restaurant_id"] == restaurant_id and (course is None or d["course"] == course)]
    return {"dishes": [{k: d[k] for k in ("name", "course", "price")} for d in rows]}
