// Elements from values. Text goes in as text, always: nothing here reads HTML.

/** Makes an element: `el("a", { href: "#", class: "x", onclick }, "text", other)`. */
export function el(tag, given, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(given ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "value" || name === "checked" || name === "indeterminate") node[name] = value;
    else if (name === "vars") for (const [key, v] of Object.entries(value)) node.style.setProperty(key, v);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  add(node, children);
  return node;
}

/** Adds children: elements, text, or lists of them; nothing for null and false. */
export function add(node, children) {
  for (const child of children.flat(3)) {
    if (child === null || child === undefined || child === false) continue;
    node.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return node;
}

/** Replaces everything in an element. */
export function fill(node, ...children) {
  node.replaceChildren();
  return add(node, children);
}

/** An element of SVG. */
export function svg(tag, given, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(given ?? {})) node.setAttribute(name, String(value));
  add(node, children);
  return node;
}

/** Says something to whoever cannot see it. */
export function say(words) {
  const said = document.getElementById("said");
  if (said) said.textContent = words;
}

/** Calls once things have been quiet for a while. */
export function later(wait, work) {
  let timer;
  return (...given) => {
    clearTimeout(timer);
    timer = setTimeout(() => work(...given), wait);
  };
}
