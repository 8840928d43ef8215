class ToolError(Exception):
    """An expected failure; the server reports it as an MCP error result."""

    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


def search_books(state, *, title=None, author=None):
    if title is None and author is None:
        raise ToolError("invalid_argument", "give a title or an author")
    rows = [b for b in state["books"].values()
            if (title is None or title.lower() in b["title"].lower())
            and (author is None or author.lower() in b["author"].lower())]
    return {"books": [{k: b[k] for k in ("id", "title", "author", "year")} for b in rows]}


def list_copies(state, *, book_id, status=None):
    if book_id not in state["books"]:
        raise ToolError("not_found", "no such book")
    rows = [c for c in state["copies"].values()
            if c["book_id"] == book_id and (status is None or c["status"] == status)]
    return {"copies": [{k: c[k] for k in ("id", "branch_id", "shelf", "status")} for c in rows]}


def get_branch(state, *, branch_id):
    b = state["branches"].get(branch_id)
    if b is None:
        raise ToolError("not_found", "no such branch")
    return b


def list_events(state, *, branch_id, on=None):
    if branch_id not in state["branches"]:
        raise ToolError("not_found", "no such branch")
    rows = [e for e in state["events"].values() if e["branch_id"] == branch_id and (on is None or e["date"] == on)]
    return {"events": [{k: e[k] for k in ("id", "title", "date")} for e in rows]}


def get_member(state, *, member_id):
    m = state["members"].get(member_id)
    if m is None:
        raise ToolError("not_found", "no such member")
    return m
