// The widgets are those of InstantSearch; the adapter turns their searches into requests to svcd.
const { searchClient } = instantMeiliSearch(SHOP.url, SHOP.key, { finitePagination: true });
const widgets = instantsearch.widgets;
const search = instantsearch({ indexName: "products", searchClient, routing: true, future: { preserveSharedStateOnUnmount: true } });

search.addWidgets([
  widgets.configure({ hitsPerPage: 9 }),
  widgets.searchBox({ container: "#searchbox", placeholder: "Search products", autofocus: true }),
  widgets.refinementList({ container: "#category", attribute: "category" }),
  widgets.refinementList({ container: "#brand", attribute: "brand", searchable: true, searchablePlaceholder: "Search brands" }),
  widgets.rangeInput({ container: "#price", attribute: "price" }),
  widgets.clearRefinements({ container: "#clear", templates: { resetLabel: () => "Clear all" } }),
  widgets.stats({ container: "#stats", templates: { text: ({ nbHits }) => `${nbHits} products` } }),
  widgets.sortBy({
    container: "#sort",
    items: [
      { label: "Best match", value: "products" },
      { label: "Cheapest first", value: "products:price:asc" },
      { label: "Dearest first", value: "products:price:desc" },
    ],
  }),
  widgets.hits({
    container: "#hits",
    templates: {
      // `html` escapes what documents say; Highlight turns the marks of svcd into elements.
      item: (hit, { html, components }) => html`
        <article>
          <h3>${components.Highlight({ hit, attribute: "name" })}</h3>
          <p>${components.Highlight({ hit, attribute: "description" })}</p>
          <p class="price">${hit.brand} · €${hit.price.toFixed(2)}</p>
        </article>`,
      empty: ({ query }, { html }) => html`<p>Nothing found for “${query}”.</p>`,
    },
  }),
  widgets.pagination({ container: "#pages" }),
]);

search.on("error", ({ error }) => {
  document.querySelector("#stats").textContent = `svcd at ${SHOP.url} does not answer: ${error.message}`;
});

search.start();
