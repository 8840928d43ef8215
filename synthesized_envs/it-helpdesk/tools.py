class ToolError(Exception):
    """An expected failure; the server reports it as an MCP error result."""

    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


from datetime import date


def get_asset(state, *, asset_tag):
    a = state["assets"].get(asset_tag)
    if a is None:
        raise ToolError("not_found", "no such asset")
    return a


def get_employee(state, *, employee_id):
    e = state["employees"].get(employee_id)
    if e is None:
        raise ToolError("not_found", "no such employee")
    return e


def create_ticket(state, *, asset_tag, requester_id, priority, summary):
    if asset_tag not in state["assets"] or requester_id not in state["employees"]:
        raise ToolError("not_found", "no such asset or employee")
    key = f"TK-{8100 + len(state['tickets']) + 1}"
    state["tickets"][key] = {"id": key, "asset_tag": asset_tag, "requester_id": requester_id,
                             "priority": priority, "summary": summary, "status": "open"}
    return {"ticket_id": key}


def schedule_pickup(state, *, ticket_id, office, on):
    if ticket_id not in state["tickets"]:
        raise ToolError("not_found", "no such ticket")
    depot = next((o for o in state["offices"].values() if o["name"].lower() == office.lower()), None)
    if depot is None:
        raise ToolError("not_found", "no such office")
    if date.fromisoformat(on).weekday() >= 5:
        raise ToolError("precondition_failed", "couriers do not run at weekends")
    if on <= state["clock"]["now"]["today"]:
        raise ToolError("precondition_failed", "a pickup needs at least a day's notice")
    key = f"PU-{310 + 7 * (len(state['pickups']) + 1)}"
    state["pickups"][key] = {"id": key, "ticket_id": ticket_id, "office_id": depot["id"], "on": on}
    return {"confirmation": key, "window": depot["window"]}


def move_to_storage(state, *, asset_tag):
    if asset_tag not in state["assets"]:
        raise ToolError("not_found", "no such asset")
    state["assets"][asset_tag]["location"] = "storage"
    return {"asset_tag": asset_tag, "location": "storage"}


def list_tickets(state, *, requester_id, status=None):
    rows = [t for t in state["tickets"].values()
            if t["requester_id"] == requester_id and (status is None or t["status"] == status)]
    return {"tickets": [{k: t[k] for k in ("id", "priority", "status")} for t in rows]}
