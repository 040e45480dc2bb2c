// The tokens of a path. Everything from a model, a tool or a prompt is set as text content, never as markup.
const put = (parent, tag, name, text) => {
  const made = document.createElement(tag);
  if (name) made.className = name;
  if (text !== undefined) made.textContent = text;
  parent.append(made);
  return made;
};
const visible = (text) => text.replace(/\r/g, "␍").replace(/\n/g, "⏎\n").replace(/\t/g, "⇥\t");

export default {
  template: `<div :class="picks ? 'strip picks' : 'strip'"></div>`,
  props: { runs: Array, palette: Array, inks: Array, chosen: Number, picks: Boolean },
  mounted() {
    this.tip = put(document.body, "div", "tip");
    this.tip.setAttribute("role", "tooltip");
    this.$el.addEventListener("mouseover", (event) => this.point(event.target));
    this.$el.addEventListener("mouseleave", () => (this.tip.style.display = "none"));
    // A token is chosen by its node and its place there; a number field beside the strip does the same by keys.
    this.$el.addEventListener("click", ({ target }) => {
      if (this.picks && target.classList.contains("token"))
        this.$emit("token", `${this.runs[target.dataset.r].node} ${target.dataset.i}`);
    });
    this.draw();
  },
  unmounted() {
    this.tip.remove();
  },
  watch: {
    runs() { this.draw(); },
    chosen() { this.mark(); },
  },
  methods: {
    draw() {
      this.$el.replaceChildren();
      this.tip.style.display = "none";
      this.runs.forEach((run, r) => {
        const block = put(this.$el, "section", `run ${run.role}${run.forced ? " forced" : ""}`);
        block.dataset.node = run.node;
        const head = put(block, "button", "run-head", run.title);
        head.addEventListener("click", () => this.$emit("pick", run.node));
        const body = put(block, "div", "run-text");
        run.texts.forEach((text, i) => {
          const span = put(body, "span", "token", visible(text));
          span.dataset.r = r;
          span.dataset.i = i;
          if (run.marks?.[i]) span.classList.add("marked");
          const shade = run.shades[i];
          if (run.same?.[i]) span.classList.add("same");
          else if (shade >= 0) {
            span.style.background = this.palette[shade];
            span.style.color = this.inks[shade];
          }
        });
        if (!run.texts.length) put(body, "span", "nothing", "no tokens");
        if (run.state) {
          const more = put(block, "details", "state");
          put(more, "summary", "", "state after this node");
          put(more, "pre", "", run.state);
        }
      });
      this.mark();
    },
    mark() {
      for (const block of this.$el.querySelectorAll(".run"))
        block.classList.toggle("chosen", Number(block.dataset.node) === this.chosen);
    },
    point(target) {
      if (!target.classList.contains("token")) {
        this.tip.style.display = "none";
        return;
      }
      const run = this.runs[target.dataset.r];
      const i = Number(target.dataset.i);
      this.tip.replaceChildren();
      put(this.tip, "b", "", `“${visible(run.texts[i])}”`);
      put(this.tip, "i", "", `action ${run.start + i} · ${run.title}`);
      const facts = put(this.tip, "dl", "");
      for (const [name, values] of Object.entries(run.facts)) {
        if (values[i] === null) continue;
        put(facts, "dt", "", name);
        put(facts, "dd", "", String(values[i]));
      }
      if (run.top.length) {
        put(this.tip, "i", "", "alternatives, most likely first");
        const list = put(this.tip, "table", "tops");
        for (const [text, logp] of run.top[i]) {
          const row = put(list, "tr", text === run.texts[i] ? "taken" : "");
          put(row, "td", "", visible(text));
          put(row, "td", "", `${(100 * Math.exp(logp)).toFixed(1)} %`);
        }
      }
      this.tip.style.display = "block";
      const at = target.getBoundingClientRect();
      const wide = this.tip.offsetWidth, high = this.tip.offsetHeight;
      const below = at.bottom + 8 + high < window.innerHeight;
      this.tip.style.left = `${Math.max(8, Math.min(at.left, window.innerWidth - wide - 8))}px`;
      this.tip.style.top = `${below ? at.bottom + 6 : Math.max(8, at.top - high - 6)}px`;
    },
  },
};
