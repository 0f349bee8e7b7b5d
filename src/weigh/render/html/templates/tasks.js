// The table of tasks: sorted, filtered, one page at a time, fast for ten thousand tasks.

const SIZES = [25, 50, 100, 500];
const NUMERIC = new Set(["int", "bytes", "seconds", "cpus", "share", "number"]);
const PRINTED = 500; // rows on paper
const FAILED = new Set(["failed", "out of memory", "timeout", "node fail", "cancelled", "interrupted"]);
const ASIDE = new Set(["signal", "attempts", "label", "command", "output", "record"]); // not on paper
const collator = new Intl.Collator("en", { numeric: true });

function cells(column) {
  if (column.words) return column.values.map((place) => column.words[place]);
  return column.values;
}

class Tasks {
  constructor(host, data) {
    this.host = host;
    this.columns = data.columns.map((column) => ({ ...column, cells: cells(column) }));
    this.count = data.count;
    this.noun = data.noun;
    // failed ones first, then as they came
    const states = this.columns.find((one) => one.kind === "state").cells;
    this.failed = states.map((state) => FAILED.has(state));
    const isMixed = this.failed.includes(true) && this.failed.includes(false);
    this.order = { column: this.columns[0].key === "task" && !isMixed ? 0 : -1, down: false };
    this.page = 0;
    this.size = 50;
    this.text = "";
    this.state = "";
    this.haystacks = null;
    this.build();
    this.sort();
  }

  build() {
    this.search = element("input", { type: "search", id: "task-search", autocomplete: "off", spellcheck: false });
    this.search.placeholder = "node07 seed=3 memory>4GiB";
    this.search.setAttribute("aria-describedby", "task-help");
    this.search.addEventListener("input", () => { this.text = this.search.value; this.filter(); });
    this.status = element("p", { className: "quiet", role: "status" });
    this.body = element("tbody");
    this.host.replaceChildren(
      element(
        "div", { className: "filters" },
        element("label", { className: "grow" }, "Filter ", this.search), this.states(),
      ),
      element("p", {
        className: "unseen", id: "task-help",
        textContent: "Words must all occur. A column's name with =, < or > compares: memory>4GiB, time<90m.",
      }),
      this.table(), this.pager(),
    );
  }

  states() {
    const column = this.columns.find((one) => one.kind === "state");
    const number = new Map();
    for (const state of column.cells) number.set(state, (number.get(state) ?? 0) + 1);
    const select = element("select", {}, element("option", { value: "", textContent: `all (${this.count})` }));
    for (const [state, many] of number) {
      select.append(element("option", { value: state, textContent: `${state} (${many})` }));
    }
    select.addEventListener("change", () => { this.state = select.value; this.filter(); });
    return element("label", {}, "State ", select);
  }

  table() {
    this.heads = this.columns.map((column, number) => {
      const press = element("button", { type: "button", textContent: column.title });
      press.addEventListener("click", () => this.sortBy(number));
      const head = element("th", { scope: "col" }, press);
      head.classList.toggle("number", NUMERIC.has(column.kind));
      head.classList.toggle("aside", number > 0 && ASIDE.has(column.key));
      return head;
    });
    this.grid = element(
      "table", { className: "tasks" },
      element("caption", { className: "unseen", textContent: `All ${this.noun}; the buttons in the head sort` }),
      element("thead", {}, element("tr", {}, ...this.heads)), this.body,
    );
    const region = element("div", { className: "scroll", tabIndex: 0 }, this.grid);
    region.setAttribute("role", "region");
    region.setAttribute("aria-label", `All ${this.noun}`);
    return region;
  }

  pager() {
    const make = (label, words, act) => {
      const made = element("button", { type: "button", textContent: label });
      made.setAttribute("aria-label", words);
      made.addEventListener("click", act);
      return made;
    };
    this.first = make("First", "First page", () => this.turn(0));
    this.back = make("Previous", "Previous page", () => this.turn(this.page - 1));
    this.next = make("Next", "Next page", () => this.turn(this.page + 1));
    this.last = make("Last", "Last page", () => this.turn(this.pages - 1));
    const size = element("select", {}, ...SIZES.map((n) => element("option", { value: String(n), textContent: String(n) })));
    size.value = String(this.size);
    size.addEventListener("change", () => { this.size = Number(size.value); this.turn(0); });
    return element(
      "div", { className: "pager" }, this.status,
      element("label", { className: "quiet" }, "Rows a page ", size), this.first, this.back, this.next, this.last,
    );
  }

  get pages() {
    return Math.max(1, Math.ceil(this.shown.length / this.size));
  }

  sortBy(number) {
    const same = this.order.column === number;
    this.order = { column: number, down: same && !this.order.down };
    this.sort();
  }

  // What was not measured stays last, whichever way round.
  sort() {
    const { column, down } = this.order;
    if (column < 0) { // as they came
      const rows = Array.from({ length: this.count }, (_, row) => row);
      this.sorted = rows.filter((row) => this.failed[row]).concat(rows.filter((row) => !this.failed[row]));
      this.heads.forEach((head) => head.setAttribute("aria-sort", "none"));
      this.filter();
      return;
    }
    const { cells: values, kind } = this.columns[column];
    const compare = NUMERIC.has(kind) ? (a, b) => a - b : collator.compare;
    const [known, unknown] = [[], []];
    for (let row = 0; row < this.count; row += 1) {
      const isKnown = values[row] !== null && values[row] !== "";
      (isKnown ? known : unknown).push(row);
    }
    known.sort((a, b) => (down ? compare(values[b], values[a]) : compare(values[a], values[b])) || a - b);
    this.sorted = known.concat(unknown);
    this.heads.forEach((head, number) => {
      head.setAttribute("aria-sort", number !== column ? "none" : down ? "descending" : "ascending");
    });
    this.filter();
  }

  filter() {
    const tests = this.text.toLowerCase().split(/\s+/).filter(Boolean).map((word) => this.test(word));
    const states = this.state && this.columns.find((one) => one.kind === "state").cells;
    this.shown = this.sorted.filter(
      (row) => (!states || states[row] === this.state) && tests.every((test) => test(row)),
    );
    this.turn(0);
  }

  test(word) {
    const match = /^([^=<>]+)(>=|<=|=|<|>)(.+)$/.exec(word);
    const column = match && this.columns.find((one) => this.isCalled(one, match[1]));
    if (column) {
      const test = this.comparison(column, match[2], match[3]);
      if (test) return test;
    }
    const stacks = this.searched();
    return (row) => stacks[row].includes(word);
  }

  isCalled(column, name) {
    const plain = (text) => text.toLowerCase().replace(/[\s_]/g, "");
    return [column.key, column.title].some((text) => plain(text) === plain(name));
  }

  comparison(column, sign, text) {
    const values = column.cells;
    if (!NUMERIC.has(column.kind)) {
      return sign === "=" ? (row) => values[row].toLowerCase().includes(text) : null;
    }
    const wanted = read(text, column.kind);
    if (wanted === null) return null;
    const holds = {
      "=": (value) => value === wanted || write(value, column.kind) === write(wanted, column.kind),
      "<": (value) => value < wanted, ">": (value) => value > wanted,
      "<=": (value) => value <= wanted, ">=": (value) => value >= wanted,
    }[sign];
    return (row) => values[row] !== null && holds(values[row]);
  }

  searched() {
    if (!this.haystacks) {
      const texts = this.columns.filter((column) => !["bytes", "seconds", "cpus", "share"].includes(column.kind));
      this.haystacks = Array.from({ length: this.count }, (_, row) => texts
        .map((column) => (column.kind === "number" || column.kind === "int" ? `${column.key}=${column.cells[row]}` : column.cells[row]))
        .join("\n").toLowerCase());
    }
    return this.haystacks;
  }

  turn(page) {
    this.page = Math.min(Math.max(0, page), this.pages - 1);
    const from = this.page * this.size;
    const rows = this.shown.slice(from, from + this.size);
    this.body.replaceChildren(...rows.map((row) => this.row(row)));
    this.first.disabled = this.back.disabled = this.page === 0;
    this.last.disabled = this.next.disabled = this.page === this.pages - 1;
    const of = this.shown.length === this.count ? "" : ` (of ${this.count.toLocaleString("en")})`;
    this.status.textContent = rows.length
      ? `${(from + 1).toLocaleString("en")} to ${(from + rows.length).toLocaleString("en")} of ${this.shown.length.toLocaleString("en")} ${this.noun}${of}`
      : `none of ${this.count.toLocaleString("en")} ${this.noun} matches`;
  }

  row(row) {
    return element("tr", {}, ...this.columns.map((column, number) => {
      const value = column.cells[row];
      if (number === 0) {
        const className = NUMERIC.has(column.kind) ? "number" : "brief";
        return element("th", { scope: "row", className, textContent: write(value, column.kind) });
      }
      if (column.kind === "state") {
        const dot = element("span", { className: `dot ${value.toUpperCase().replace(/ /g, "_")}` });
        dot.setAttribute("aria-hidden", "true");
        return element("td", { className: "brief" }, dot, value);
      }
      const shape = NUMERIC.has(column.kind) ? "number" : value.length > 24 ? "text" : "brief";
      const className = ASIDE.has(column.key) ? `${shape} aside` : shape;
      const cell = element("td", { className, textContent: write(value, column.kind) });
      if (shape === "text") cell.title = value;
      return cell;
    }));
  }
}

const table = document.getElementById("task-table");
if (table && DATA.tasks) {
  const tasks = new Tasks(table, DATA.tasks);
  let before = null;
  addEventListener("beforeprint", () => { before = [tasks.size, tasks.page]; tasks.size = PRINTED; tasks.turn(0); });
  addEventListener("afterprint", () => { if (before) { [tasks.size] = before; tasks.turn(before[1]); before = null; } });
}
