class ToolError(Exception):
    """An expected failure; the server reports it as an MCP error result."""

    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


PAGE_ROWS = 8


def find_sites(state, *, name):
    rows = [s for s in state["sites"].values() if name.lower() in s["name"].lower()]
    return {"sites": [{k: s[k] for k in ("id", "name", "habitat")} for s in rows]}


def find_species(state, *, name):
    rows = [s for s in state["species"].values() if name.lower() in s["name"].lower()]
    return {"species": [{k: s[k] for k in ("id", "name")} for s in rows]}


def list_observers(state, *, status=None):
    rows = [o for o in state["observers"].values() if status is None or o["status"] == status]
    return {"observers": [{k: o[k] for k in ("id", "status")} for o in rows]}


def get_observer(state, *, observer_id):
    o = state["observers"].get(observer_id)
    if o is None:
        raise ToolError("not_found", "no such observer")
    return {k: o[k] for k in ("id", "name", "status", "since")}


def list_counts(state, *, site_id, month, cursor=None):
    if site_id not in state["sites"]:
        raise ToolError("not_found", "no such site")
    rows = [
        c for c in state["counts"].values() if c["site_id"] == site_id and c["day"][:7] == month
    ]
    rows.sort(key=lambda c: (c["day"], c["id"]))
    first = 0
    if cursor is not None:
        at = [i for i, c in enumerate(rows) if c["id"] == "CT-" + cursor[5:]]
        if not at:
            raise ToolError("invalid_argument", "the cursor does not belong to this list")
        first = at[0] + 1
    page = rows[first : first + PAGE_ROWS]
    keys = ("id", "day", "species_id", "observer_id", "number")
    result = {"counts": [{k: c[k] for k in keys} for c in page]}
    if first + PAGE_ROWS < len(rows):
        result["next_cursor"] = "next-" + page[-1]["id"][3:]
    return result


def get_threshold(state, *, species_id):
    s = state["species"].get(species_id)
    if s is None:
        raise ToolError("not_found", "no such species")
    return {"species_id": species_id, "national": s["national"], "regional": s["regional"]}


def submit_count(state, *, site_id, species_id, observer_id, day, number):
    if site_id not in state["sites"] or species_id not in state["species"]:
        raise ToolError("not_found", "no such site or species")
    if observer_id not in state["observers"]:
        raise ToolError("not_found", "no such observer")
    key = f"CT-{700 + len(state['counts']) + 1}"
    state["counts"][key] = {
        "id": key,
        "site_id": site_id,
        "day": day,
        "species_id": species_id,
        "observer_id": observer_id,
        "number": number,
    }
    same = [
        c
        for c in state["counts"].values()
        if c["site_id"] == site_id
        and c["species_id"] == species_id
        and c["day"] == day
        and c["observer_id"] == observer_id
    ]
    return {"count_id": key, "day_total": sum(c["number"] for c in same)}
