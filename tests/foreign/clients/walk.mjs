// What every TypeScript client does with a connected counter bundle; the report is one JSON line.
//
// The target comes as JSON in argv[2]: {"url": "..."} or {"command": ["python", "server.py"]}.
// `ask` turns a call into {value} | {error}: an isError result and a thrown protocol error are both
// facts to report, never a reason to stop.

export const target = JSON.parse(process.argv[2]);

async function ask(client, name, args) {
  try {
    const result = await client.callTool({ name, arguments: args });
    if (result.isError) return { isError: true, text: result.content[0].text };
    return { value: result.structuredContent.value, text: result.content[0].text };
  } catch (error) {
    return { code: error.code, text: error.message };
  }
}

export async function walk(client) {
  const { tools } = await client.listTools();
  const report = {
    server: client.getServerVersion()?.name,
    instructions: client.getInstructions(),
    tools: Object.fromEntries(tools.map((t) => [t.name, t.annotations?.readOnlyHint])),
    counted: [],
  };
  for (let i = 0; i < 3; i++) report.counted.push((await ask(client, "increment", {})).value);
  report.invalid = await ask(client, "increment", { by: 0 });
  report.refused = await ask(client, "increment", { by: 50 }).then(() =>
    ask(client, "increment", { by: 50 }),
  );
  report.unknown = await ask(client, "no_such_tool", {});
  report.read = (await ask(client, "read_counter", {})).value;
  return report;
}

export async function tell(report) {
  process.stdout.write(JSON.stringify(report) + "\n");
}
