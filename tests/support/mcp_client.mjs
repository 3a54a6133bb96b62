// The official client of TypeScript lists and calls tools. Arguments: folder of the package, address, key, [[name, arguments], ...].
const [folder, url, key, calls] = process.argv.slice(2);
const { Client } = await import(`${folder}/dist/esm/client/index.js`);
const { StreamableHTTPClientTransport } = await import(`${folder}/dist/esm/client/streamableHttp.js`);

const client = new Client({ name: "test", version: "1" });
await client.connect(new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers: { Authorization: `Bearer ${key}` } } }));
const { tools } = await client.listTools();
const results = [];
for (const [name, given] of JSON.parse(calls)) results.push(await client.callTool({ name, arguments: given }));
const { resources } = await client.listResources();
const { contents } = await client.readResource({ uri: resources[0].uri });
const { messages } = await client.getPrompt({ name: "search", arguments: {} });
console.log(JSON.stringify({
  tools: tools.map((tool) => tool.name), results: results.map((result) => result.structuredContent),
  errors: results.map((result) => Boolean(result.isError)), resource: contents[0].text, prompt: messages[0].content.text,
}));
await client.close();
