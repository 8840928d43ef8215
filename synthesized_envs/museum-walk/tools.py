class ToolError(Exception):
    """An expected failure; the server reports it as an MCP error result."""

    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


def list_artists(state, *, school):
    rows = [a for a in state["artists"].values() if a["school"].lower() == school.lower()]
    return {"artists": [{k: a[k] for k in ("id", "name", "born")} for a in rows]}


def search_works(state, *, artist_id, medium=None):
    if artist_id not in state["artists"]:
        raise ToolError("not_found", "no such artist")
    rows = [w for w in state["works"].values() if w["artist_id"] == artist_id and (medium is None or w["medium"] == medium)]
    return {"works": [{k: w[k] for k in ("id", "title", "year")} for w in rows]}


def list_rooms(state, *, wing):
    rows = [r for r in state["rooms"].values() if r["wing"] == wing]
    return {"rooms": [{k: r[k] for k in ("id", "name")} for r in rows]}


def list_displayed(state, *, room_id):
    r = state["rooms"].get(room_id)
    if r is None:
        raise ToolError("not_found", "no such room")
    return {"work_ids": r["on_display"]}


def get_loan(state, *, work_id):
    loan = next((x for x in state["loans"].values() if x["work_id"] == work_id), None)
    if loan is None:
        raise ToolError("not_found", "this work is not out on loan")
    return {k: loan[k] for k in ("work_id", "borrower", "returns")}


def get_condition_report(state, *, work_id):
    w = state["works"].get(work_id)
    if w is None:
        raise ToolError("not_found", "no such work")
    return {"work_id": work_id, "condition": w["condition"]}


def find_visitor_info(state, *, topic):
    rows = [v for v in state["visitor_info"].values() if topic.lower() in v["topic"].lower()]
    return {"entries": [{k: v[k] for k in ("topic", "text")} for v in rows]}
