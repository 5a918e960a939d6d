// What forms read of the JSON Schema of manifests. Nothing here knows a type: what the schema has is shown.

export function resolve(schema, root) {
  const { description, default: standard } = schema;
  for (let depth = 0; depth < 20; depth += 1) {
    if (schema.$ref) schema = root.$defs[schema.$ref.split("/").at(-1)];
    else if (schema.anyOf) schema = schema.anyOf.find((one) => one.type !== "null" && !one.pattern) || schema.anyOf[0];
    else break;
  }
  return { ...schema, ...(description && { description }), ...(standard !== undefined && { default: standard }) };
}

export function typesOf(root) {
  const listed = root.$defs.resource.properties;
  const types = Object.entries(listed).map(([name, one]) => {
    const body = resolve(one, root);
    return { name, description: body.description || "", schema: root.$defs[`${name}_properties`], title: nameOf(body, root) };
  });
  const [first, ...rest] = types;
  const common = new Set(Object.keys(first?.schema.properties || {}).filter((key) => rest.every((one) => key in one.schema.properties)));
  common.delete("ensure");
  return types.map((one) => ({ ...one, common }));
}

// What a resource's name is, in the words of its type.
const nameOf = (body, root) => (body.oneOf || []).map((one) => resolve(one, root).properties?.name?.description).find(Boolean) || "The resource's name.";

export function kindOf(schema) {
  const types = [schema.type].flat();
  if (schema.enum) return "choice";
  if (types.includes("array")) return "list";
  if (types.includes("object")) return schema.properties ? "section" : "mapping";
  if (!schema.type) return "free";
  if (types.includes("string")) return types.length === 1 ? "text" : "line";
  if (types.includes("boolean")) return "flag";
  return "number";
}
