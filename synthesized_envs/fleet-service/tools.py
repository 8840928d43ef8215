class ToolError(Exception):
    """An expected failure; the server reports it as an MCP error result."""

    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


def find_depot(state, *, city):
    d = next((d for d in state["depots"].values() if d["city"].lower() == city.lower()), None)
    if d is None:
        raise ToolError("not_found", "no depot in that city")
    return d


def list_vehicles(state, *, depot_id, kind=None):
    if depot_id not in state["depots"]:
        raise ToolError("not_found", "no such depot")
    rows = [v for v in state["vehicles"].values() if v["depot_id"] == depot_id and (kind is None or v["kind"] == kind)]
    return {"vehicles": [{k: v[k] for k in ("id", "kind", "plate", "odometer_km")} for v in rows]}


def get_service_record(state, *, vehicle_id):
    r = state["service"].get(vehicle_id)
    if r is None:
        raise ToolError("not_found", "no service record for that vehicle")
    return r


def get_service_plan(state, *, plan_id):
    p = state["plans"].get(plan_id)
    if p is None:
        raise ToolError("not_found", "no such service plan")
    return p


def list_fines(state, *, vehicle_id):
    if vehicle_id not in state["vehicles"]:
        raise ToolError("not_found", "no such vehicle")
    return {"fines": [{k: f[k] for k in ("date", "amount_eur")} for f in state["fines"].values() if f["vehicle_id"] == vehicle_id]}


def get_driver(state, *, driver_id):
    d = state["drivers"].get(driver_id)
    if d is None:
        raise ToolError("not_found", "no such driver")
    return d
