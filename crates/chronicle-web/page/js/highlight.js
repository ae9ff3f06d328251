// Colours for code, line by line: comments, strings, numbers and words that mean something.

const WORDS = {
  c: "auto break case catch char class const continue default delete do double else enum export extends extern final finally float for from function goto if implements import in inline instanceof int interface let long namespace new null nullptr of override package private protected public return short signed sizeof static struct super switch template this throw throws true false try type typedef typeof undefined union unsigned using var virtual void volatile while with yield async await",
  rust: "as async await break const continue crate dyn else enum extern false fn for if impl in let loop match mod move mut pub ref return self Self static struct super trait true type unsafe use where while",
  python: "and as assert async await break class continue def del elif else except False finally for from global if import in is lambda None nonlocal not or pass raise return True try while with yield match case self",
  go: "break case chan const continue default defer else fallthrough for func go goto if import interface map nil package range return select struct switch type var true false",
  shell: "if then else elif fi for while until do done case esac in function return local export set unset echo exit source readonly shift trap",
  ruby: "alias and begin break case class def do else elsif end ensure false for if in module next nil not or redo rescue retry return self super then true undef unless until when while yield require",
  sql: "select from where insert into values update delete create table drop alter index join left right inner outer on group by order having limit and or not null primary key references as distinct union all case when then else end",
  data: "true false null yes no on off",
};

const ENDINGS = {
  rust: "rs", python: "py pyi", go: "go", ruby: "rb", shell: "sh bash zsh fish env", sql: "sql",
  c: "c h cc cpp hpp cs java js mjs cjs jsx ts tsx kt swift scala php dart css scss",
  data: "json toml yaml yml ini cfg conf lock",
};

const COMMENTS = { c: "//", rust: "//", go: "//", python: "#", ruby: "#", shell: "#", data: "#", sql: "--" };

const languages = new Map();
for (const [name, endings] of Object.entries(ENDINGS)) for (const ending of endings.split(" ")) languages.set(ending, name);
const words = Object.fromEntries(Object.entries(WORDS).map(([name, list]) => [name, new Set(list.split(" "))]));

/** Which language a path is of, if it is one of these. */
export function language(path) {
  const name = path.split("/").pop();
  if (/^(Makefile|Dockerfile|Justfile)$/.test(name)) return "shell";
  return languages.get(name.split(".").pop().toLowerCase()) ?? null;
}

const PIECES = /("(?:[^"\\]|\\.)*"?|'(?:[^'\\\n]|\\.)*'?|`(?:[^`\\]|\\.)*`?)|(\b\d[\w.]*\b)|([A-Za-z_$][\w$]*)/g;

/** A line as pieces `[kind, text]`; kinds are comment, string, number, keyword, name or none. */
export function pieces(line, name) {
  if (!name || line.length > 1000) return [["", line]];
  const sign = COMMENTS[name];
  const out = [];
  let end = 0;
  const push = (kind, text) => text && out.push([kind, text]);
  PIECES.lastIndex = 0;
  for (;;) {
    const comment = line.indexOf(sign, end);
    const found = PIECES.exec(line);
    if (comment >= 0 && (!found || comment < found.index || comment <= end)) {
      push("", line.slice(end, comment));
      push("comment", line.slice(comment));
      return out;
    }
    if (!found) break;
    push("", line.slice(end, found.index));
    end = found.index + found[0].length;
    if (found[1]) push("string", found[1]);
    else if (found[2]) push("number", found[2]);
    else if (words[name].has(name === "sql" ? found[3].toLowerCase() : found[3])) push("keyword", found[3]);
    else push(line[end] === "(" ? "call" : "", found[3]);
  }
  push("", line.slice(end));
  return out;
}
