class ToolError(Exception):
    """An expected failure; the server reports it as an MCP error result."""

    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


def list_accounts(state, *, currency=None):
    rows = [a for a in state["accounts"].values() if currency is None or a["currency"] == currency]
    return {"accounts": [{k: a[k] for k in ("id", "label", "currency", "balance")} for a in rows]}


def get_exchange_rate(state, *, sell, buy):
    r = state["rates"].get(f"{sell}/{buy}")
    if r is None:
        raise ToolError("not_found", "that pair is not quoted")
    return {"pair": f"{sell}/{buy}", "rate": r["rate"]}


def find_payee(state, *, name):
    rows = [p for p in state["payees"].values() if name.lower() in p["name"].lower()]
    return {"payees": [{k: p[k] for k in ("id", "name", "country")} for p in rows]}


def create_transfer(state, *, from_account, payee_id, amount_eur):
    a = state["accounts"].get(from_account)
    if a is None or payee_id not in state["payees"]:
        raise ToolError("not_found", "no such account or payee")
    if a["currency"] != "EUR":
        raise ToolError("precondition_failed", "transfers leave from euro accounts only")
    if amount_eur > a["balance"]:
        raise ToolError("precondition_failed", "the account does not hold enough")
    a["balance"] = round(a["balance"] - amount_eur, 2)
    key = f"TR-{40 + len(state['transfers']) + 1}"
    state["transfers"][key] = {"id": key, "from_account": from_account, "payee_id": payee_id, "amount_eur": amount_eur}
    return {"transfer_id": key, "new_balance": a["balance"]}


def list_transfers(state, *, from_account):
    return {"transfers": [t for t in state["transfers"].values() if t["from_account"] == from_account]}


def freeze_account(state, *, account_id):
    if account_id not in state["accounts"]:
        raise ToolError("not_found", "no such account")
    state["accounts"][account_id]["frozen"] = True
    return {"account_id": account_id, "frozen": True}
