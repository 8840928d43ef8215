class ToolError(Exception):
    """An expected failure; the server reports it as an MCP error result."""

    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


def find_carriers(state, *, origin, destination):
    lane = next((x for x in state["lanes"].values()
                 if x["origin"].lower() == origin.lower() and x["destination"].lower() == destination.lower()), None)
    if lane is None:
        raise ToolError("not_found", "no carrier serves that lane")
    return {"lane_id": lane["id"], "carriers": [{"id": c, "name": state["carriers"][c]["name"]} for c in lane["carriers"]]}


def get_quote(state, *, carrier_id, lane_id, weight_kg):
    tariff = state["tariffs"].get(f"{carrier_id}/{lane_id}")
    if tariff is None:
        raise ToolError("not_found", "this carrier has no tariff for that lane")
    if weight_kg > tariff["max_kg"]:
        raise ToolError("limit_exceeded", "the shipment is too heavy for this carrier")
    return {"carrier_id": carrier_id, "price_eur": round(tariff["base"] + tariff["per_kg"] * weight_kg, 2)}


def get_fuel_surcharge(state, *, carrier_id):
    c = state["carriers"].get(carrier_id)
    if c is None:
        raise ToolError("not_found", "no such carrier")
    return {"carrier_id": carrier_id, "percent": c["fuel_percent"], "valid_until": c["fuel_until"]}


def get_transit_time(state, *, carrier_id, lane_id):
    tariff = state["tariffs"].get(f"{carrier_id}/{lane_id}")
    if tariff is None:
        raise ToolError("not_found", "this carrier has no tariff for that lane")
    return {"carrier_id": carrier_id, "days": tariff["days"]}


def track_shipment(state, *, waybill):
    s = state["shipments"].get(waybill)
    if s is None:
        raise ToolError("not_found", "no such waybill")
    return s
