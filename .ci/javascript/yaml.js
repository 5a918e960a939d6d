// What the studio takes of the YAML library; `.ci/vendor-javascript` makes one ES module of it.
export { isAlias, isMap, isScalar, isSeq, LineCounter, parseDocument, Scalar } from "yaml";
