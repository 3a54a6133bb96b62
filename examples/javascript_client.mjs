// Add, search and filter films with the JavaScript client `meilisearch`, which works with svcd as it is.
//
//   npm install --prefix examples
//   node examples/javascript_client.mjs [URL [KEY]]

import { readFile } from "node:fs/promises";
import { Meilisearch } from "meilisearch";

const [host = "http://localhost:7700", apiKey] = process.argv.slice(2);
const client = new Meilisearch({ host, apiKey });
const films = client.index("films");

/** Wait for a write; a failed one ends the program. */
async function done(enqueued) {
  const task = await enqueued.waitTask({ timeout: 30_000 });
  if (task.status !== "succeeded") throw new Error(`task ${task.uid} ${task.status}: ${task.error?.message ?? ""}`);
}

await done(films.updateSettings({ filterableAttributes: ["genres", "year"], sortableAttributes: ["year"] }));
await done(films.addDocuments(JSON.parse(await readFile(new URL("films.json", import.meta.url))), { primaryKey: "id" }));

const typo = await films.search("star wras"); // typos are forgiven
console.log("star wras:", typo.hits.slice(0, 2).map((hit) => hit.title).join(", "));

const old = await films.search("", { filter: "year < 1970", sort: ["year:desc"], facets: ["genres"] });
console.log("before 1970:", old.hits.map((hit) => `${hit.title} (${hit.year})`).join(", "));
console.log("their genres:", Object.entries(old.facetDistribution.genres).map(([genre, count]) => `${genre} ${count}`).join(", "));

const genres = await films.searchForFacetValues({ facetName: "genres", facetQuery: "sci" });
console.log("genres like sci:", genres.facetHits.map((hit) => `${hit.value} ${hit.count}`).join(", "));
