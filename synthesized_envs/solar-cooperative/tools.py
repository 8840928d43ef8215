class ToolError(Exception):
    """An expected failure; the server reports it as an MCP error result."""

    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


def find_members(state, *, name):
    rows = [m for m in state["members"].values() if name.lower() in m["name"].lower()]
    return {"members": [{k: m[k] for k in ("id", "name", "village", "tariff_id")} for m in rows]}


def list_meters(state, *, member_id, direction=None):
    if member_id not in state["members"]:
        raise ToolError("not_found", "no such member")
    rows = [
        m
        for m in state["meters"].values()
        if m["member_id"] == member_id and (direction is None or m["direction"] == direction)
    ]
    return {"meters": [{k: m[k] for k in ("id", "place", "direction")} for m in rows]}


def get_month_total(state, *, meter_id, month):
    if meter_id not in state["meters"]:
        raise ToolError("not_found", "no such meter")
    total = state["totals"].get(f"{meter_id}/{month}")
    if total is None:
        raise ToolError("not_found", "that meter has no total for that month")
    return {"amount": total["amount"], "unit": state["meters"][meter_id]["unit"]}


def get_tariff(state, *, tariff_id):
    t = state["tariffs"].get(tariff_id)
    if t is None:
        raise ToolError("not_found", "no such tariff")
    return {k: t[k] for k in ("id", "feed_in_ct_per_kwh", "purchase_ct_per_kwh", "valid_until")}


def list_statements(state, *, member_id):
    if member_id not in state["members"]:
        raise ToolError("not_found", "no such member")
    rows = [s for s in state["statements"].values() if s["member_id"] == member_id]
    keys = ("id", "month", "amount_eur", "status")
    return {"statements": [{k: s[k] for k in keys} for s in rows]}


def draft_statement(state, *, member_id, month, amount_eur):
    member = state["members"].get(member_id)
    if member is None:
        raise ToolError("not_found", "no such member")
    same = [
        s
        for s in state["statements"].values()
        if s["member_id"] == member_id and s["month"] == month and s["status"] != "void"
    ]
    if same:
        raise ToolError("conflict", "there is a statement for that month already")
    key = f"ST-{2600 + 23 * (len(state['statements']) + 1)}"
    state["statements"][key] = {
        "id": key,
        "member_id": member_id,
        "month": month,
        "amount_eur": amount_eur,
        "status": "draft",
    }
    earlier = [
        s["amount_eur"]
        for s in state["statements"].values()
        if s["member_id"] == member_id and s["status"] != "void" and s["month"][:4] == month[:4]
    ]
    return {"statement_id": key, "to": member["name"], "year_to_date_eur": round(sum(earlier), 2)}


def void_statement(state, *, statement_id):
    s = state["statements"].get(statement_id)
    if s is None:
        raise ToolError("not_found", "no such statement")
    was = s["status"]
    s["status"] = "void"
    return {"statement_id": statement_id, "was": was}


def get_sunshine(state, *, village, month):
    row = next(
        (w for w in state["sunshine"].values() if w["village"] == village and w["month"] == month),
        None,
    )
    if row is None:
        raise ToolError("not_found", "no record for that village and month")
    return {"hours": row["hours"], "normal_hours": row["normal_hours"]}
