from datetime import date, timedelta


class ToolError(Exception):
    """An expected failure; the server reports it as an MCP error result."""

    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


def find_owner(state, *, name):
    rows = [o for o in state["owners"].values() if name.lower() in o["name"].lower()]
    return {"owners": [{k: o[k] for k in ("id", "name", "street")} for o in rows]}


def list_pets(state, *, owner_id, species=None):
    if owner_id not in state["owners"]:
        raise ToolError("not_found", "no such owner")
    rows = [
        p
        for p in state["pets"].values()
        if p["owner_id"] == owner_id and (species is None or p["species"] == species)
    ]
    return {"pets": [{k: p[k] for k in ("id", "name", "species")} for p in rows]}


def get_vaccination_card(state, *, pet_id):
    if pet_id not in state["pets"]:
        raise ToolError("not_found", "no such animal")
    rows = [v for v in state["vaccinations"].values() if v["pet_id"] == pet_id]
    rows.sort(key=lambda v: v["given"], reverse=True)
    return {"entries": [{k: v[k] for k in ("vaccine_id", "given", "batch")} for v in rows]}


def get_vaccine(state, *, vaccine_id):
    v = state["vaccines"].get(vaccine_id)
    if v is None:
        raise ToolError("not_found", "no such vaccine")
    return {k: v[k] for k in ("id", "name", "species", "protects_days")}


def list_slots(state, *, on, vet=None):
    rows = [
        s
        for s in state["slots"].values()
        if s["on"] == on and (vet is None or vet.lower() in s["vet"].lower())
    ]
    taken = [a["slot_id"] for a in state["appointments"].values()]
    free = sorted((s for s in rows if s["id"] not in taken), key=lambda s: (s["start"], s["id"]))
    return {"slots": [{k: s[k] for k in ("id", "vet", "start")} for s in free]}


def book_booster(state, *, pet_id, vaccine_id, slot_id):
    pet = state["pets"].get(pet_id)
    vaccine = state["vaccines"].get(vaccine_id)
    slot = state["slots"].get(slot_id)
    if pet is None or vaccine is None or slot is None:
        raise ToolError("not_found", "no such animal, vaccine or slot")
    if vaccine["species"] != pet["species"]:
        raise ToolError("precondition_failed", "that vaccine is for another kind of animal")
    if any(a["slot_id"] == slot_id for a in state["appointments"].values()):
        raise ToolError("conflict", "the slot is taken")
    code = f"VB-{3300 + 19 * (len(state['appointments']) + 1)}"
    state["appointments"][code] = {
        "id": code,
        "pet_id": pet_id,
        "vaccine_id": vaccine_id,
        "slot_id": slot_id,
    }
    again = date.fromisoformat(slot["on"]) + timedelta(days=vaccine["protects_days"])
    return {
        "code": code,
        "pet": pet["name"],
        "vaccine": vaccine["name"],
        "start": slot["start"],
        "next_due": again.isoformat(),
    }


def cancel_appointment(state, *, code):
    if code not in state["appointments"]:
        raise ToolError("not_found", "no such appointment")
    gone = state["appointments"].pop(code)
    return {"code": code, "slot_id": gone["slot_id"]}


def get_fee(state, *, species, service):
    fee = next(
        (f for f in state["fees"].values() if f["species"] == species and f["service"] == service),
        None,
    )
    if fee is None:
        raise ToolError("not_found", "that service is not offered for this kind of animal")
    return {"fee_eur": fee["fee_eur"]}
