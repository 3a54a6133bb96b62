"""svcd: a search engine in one small daemon."""

__version__ = "0.1.0"
# The version of the HTTP interface that existing clients ask for.
INTERFACE_VERSION = "1.52.0"

# Who may know whom: a module imports from rows above its own and from its own package; the names on
# one row do not know each other. A test reads this list.
LAYERS = [
    "base",
    "validation geo http rhai vectors templates",
    "text chat",
    "schema",
    "query mcp",
    "facets filters ranking",
    "rules",
    "search",
    "auth index",
    "instance",
    "querylog",
    "remote",
    "cluster",
    "embedding",
    "tasks",
    "api",
    "analytics",
    "cli",
    "commands",
    "reference",
]
