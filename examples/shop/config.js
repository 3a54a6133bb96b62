// Where svcd answers, and a key that may search and no more: whoever opens the page can read both.
const SHOP = { url: "http://localhost:7700", key: "" };
