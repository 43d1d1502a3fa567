"use strict";
// Elements made of text nodes and attributes: no name of a model ever goes through a parser of HTML.

const SVG = "http://www.w3.org/2000/svg";
// characters without a shape, and those that turn what follows around: written as the page's own text has them
const UNSEEN = /(?! )[\p{C}\p{Z}]/gu;
const UNSEEN_BUT_BREAKS = /(?![ \n\t])[\p{C}\p{Z}]/gu;
const ESCAPES = { "\n": "\\n", "\r": "\\r", "\t": "\\t" };

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== null && value !== false) element.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children.flat()) {
    if (child !== null && child !== "") element.append(child instanceof Node ? child : plain(child));
  }
  return element;
}

function html(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function escaped(letter) {
  const code = letter.codePointAt(0);
  const [mark, digits] = code < 0x100 ? ["x", 2] : code < 0x10000 ? ["u", 4] : ["U", 8];
  return ESCAPES[letter] ?? `\\${mark}${code.toString(16).padStart(digits, "0")}`;
}

function plain(text, breaks = false) {
  return String(text).replace(breaks ? UNSEEN_BUT_BREAKS : UNSEEN, escaped);
}

// Returns a text in which characters that are typed as their numbers are written as `plain` writes them.
function respelled(text) {
  return text.replace(/\\x([0-9a-f]{2})|\\u([0-9a-f]{4})/gi, (_, two, four) => plain(String.fromCharCode(parseInt(two ?? four, 16))));
}

// Returns the end of a text that is too long: of a path, the last part says most.
function tail(text, most) {
  return text.length <= most ? text : `\u2026${text.slice(1 - most)}`;
}

// Returns what a path says that neither the operator nor, mostly, the block does: its last part, or its last two.
function ending(name, operator) {
  const parts = name.split("/").filter(Boolean);
  return parts.slice(parts[parts.length - 1] === operator ? -2 : -1).join("/") || name;
}

// Returns a number with four digits; "nan", "inf" and "-inf" come as text.
function figure(value) {
  if (typeof value !== "number") return String(value);
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e5 || size < 1e-3) return value.toExponential(2);
  return String(Number(value.toPrecision(4)));
}

function counted(count, noun) {
  return `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;
}

// Returns how bad an error is, 0 to 4, as classes and legends name it; -1 where it is not known.
const ERRORS = ["under 0.0001", "under 0.01", "under 0.1", "0.1 and more", "NaN or Inf"];
function badness(error) {
  if (error === null || error === undefined) return -1;
  if (typeof error !== "number") return 4;
  return error < 1e-4 ? 0 : error < 1e-2 ? 1 : error < 0.1 ? 2 : 3;
}

function said(text) {
  document.getElementById("said").textContent = plain(text);
}

// Moves the keyboard to an element that no key stops at by itself, so that what follows it is next.
function goTo(element) {
  element.setAttribute("tabindex", "-1");
  element.focus({ preventScroll: true });
}

// Puts a text where it can be pasted from, or chooses it where the browser does not let a page do that.
async function copy(element, button) {
  let done = false;
  try {
    await navigator.clipboard.writeText(element.textContent);
    done = true;
  } catch {
    getSelection().selectAllChildren(element);
    try {
      done = document.execCommand("copy");
    } catch {
      done = false;
    }
  }
  button.textContent = done ? "Copied" : "Press Ctrl+C";
  said(done ? "Copied" : "It is selected: press Ctrl+C");
  setTimeout(() => (button.textContent = "Copy"), 2000);
}
