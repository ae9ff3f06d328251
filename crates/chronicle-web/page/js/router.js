// Where the page is: `#/WORKSPACE/page/part?name=value`.

/** Reads an address. */
export function read(hash = location.hash) {
  const [path, search = ""] = hash.replace(/^#\/?/, "").split("?");
  const [workspace = "", page = "timeline", ...rest] = path.split("/").map((part) => {
    try {
      return decodeURIComponent(part);
    } catch {
      return part;
    }
  });
  return { workspace, page: page || "timeline", part: rest.join("/"), given: Object.fromEntries(new URLSearchParams(search)) };
}

/** Writes an address. */
export function address(workspace, page, part = "", given = {}) {
  const pairs = Object.entries(given).filter(([, value]) => value !== undefined && value !== null && value !== "");
  const search = pairs.length ? "?" + new URLSearchParams(pairs.map(([name, value]) => [name, String(value)])) : "";
  return `#/${workspace}/${page}${part ? "/" + encodeURIComponent(part) : ""}${search}`;
}

/** Goes somewhere. */
export const go = (to) => {
  location.hash = to;
};

/** Says where the page is without going anywhere. */
export const note = (to) => history.replaceState(null, "", to);

/** Where a file is shown. */
export function fileAddress(workspace, item, given = {}) {
  return address(workspace, "file", "", { ...(item.path_b64 ? { path_b64: item.path_b64, path: item.path } : { path: item.path }), ...given });
}
