// A tree as an icicle on a canvas. Labels are drawn as text and said as text; nothing here makes markup.
const put = (parent, tag, name, text) => {
  const made = document.createElement(tag);
  if (name) made.className = name;
  if (text !== undefined) made.textContent = text;
  parent.append(made);
  return made;
};
const SIGNS = { new: "+", fork: "◆", truncated: "✂", spliced: "⧉", forced: "»", failed: "✕" };
const BORDER = 6; // pixels from which on a rectangle has room for a border
const FONT = "12px system-ui, -apple-system, 'Segoe UI', Roboto, Arial, sans-serif";

export default {
  template: `<div class="icicle"><canvas role="img" :aria-label="drawing.about"></canvas></div>`,
  props: { drawing: Object },
  mounted() {
    this.canvas = this.$el.querySelector("canvas");
    this.tip = put(document.body, "div", "rect-tip");
    this.tip.setAttribute("role", "tooltip");
    this.marked = new Set();
    this.canvas.addEventListener("mousemove", (event) => this.point(event));
    this.canvas.addEventListener("mouseleave", () => this.unpoint());
    this.canvas.addEventListener("click", (event) => {
      const rect = this.under(event);
      if (rect) this.$emit("pick", rect.key);
    });
    // Events in a list mark the rectangles they are about; tests ask where a rectangle is.
    this.$el.mark = (keys) => { this.marked = new Set(keys); this.draw(); };
    this.$el.boxOf = (key) => {
      const found = this.drawing.rects.find((rect) => rect.key === key);
      return found ? this.box(found) : null;
    };
    this.sizes = new ResizeObserver(() => this.draw());
    this.sizes.observe(this.$el);
    this.theme = new MutationObserver(() => this.draw());
    this.theme.observe(document.body, { attributes: true, attributeFilter: ["class"] });
    this.draw();
  },
  unmounted() {
    this.sizes?.disconnect();
    this.theme?.disconnect();
    this.tip?.remove();
  },
  watch: {
    drawing() { this.unpoint(); this.draw(); },
  },
  methods: {
    box(rect) {
      const { leaves, levels } = this.drawing;
      const wide = this.$el.clientWidth / leaves;
      const high = Math.max(13, Math.min(30, Math.floor(620 / levels)));
      return { x: rect.at * wide, y: rect.level * high, w: rect.leaves * wide, h: high };
    },
    draw() {
      const width = this.$el.clientWidth;
      if (!width || !this.canvas) return;
      const { rects, levels, selected, palette, inks } = this.drawing;
      const high = this.box(rects[0]).h;
      const ratio = window.devicePixelRatio || 1;
      this.canvas.style.height = `${high * levels}px`;
      this.canvas.width = width * ratio;
      this.canvas.height = high * levels * ratio;
      const pen = this.canvas.getContext("2d");
      pen.scale(ratio, ratio);
      pen.font = FONT;
      pen.textBaseline = "middle";
      const style = getComputedStyle(document.body);
      const colours = { none: style.getPropertyValue("--none"), ink: style.getPropertyValue("--ink"),
        line: style.getPropertyValue("--soft"), accent: style.getPropertyValue("--accent") };
      let borders = 0;
      for (const rect of rects) {
        const { x, y, w, h } = this.box(rect);
        const gap = w >= BORDER ? 1 : 0;
        pen.fillStyle = rect.shade < 0 ? colours.none : palette[rect.shade];
        pen.fillRect(x, y, Math.max(w - gap, 0.5), h - 1);
        const ink = rect.shade < 0 ? colours.ink : inks[rect.shade];
        if (rect.marks.includes("pruned")) this.hatch(pen, x, y, w - gap, h - 1, ink);
        if (w >= BORDER) {
          borders++;
          pen.strokeStyle = colours.line;
          pen.globalAlpha = 0.45;
          pen.lineWidth = 1;
          pen.strokeRect(x + 0.5, y + 0.5, w - 1.5, h - 1.5);
          pen.globalAlpha = 1;
        }
        const signs = rect.marks.map((mark) => SIGNS[mark] || "").join("");
        this.write(pen, (signs ? `${signs} ` : "") + rect.label, x + 4, y + h / 2, w - 8, ink, signs.length > 0);
      }
      for (const rect of rects)
        if (rect.key === selected || this.marked.has(rect.key)) {
          const { x, y, w, h } = this.box(rect);
          if (w < BORDER) {  // no room for a frame: a bar
            pen.fillStyle = colours.ink;
            pen.fillRect(x + w / 2 - 1.5, y, 3, h - 1);
            continue;
          }
          pen.lineWidth = 3;
          pen.strokeStyle = colours.ink;
          pen.setLineDash(rect.key === selected ? [] : [5, 3]);
          pen.strokeRect(x + 1.5, y + 1.5, Math.max(w - 4, 1), h - 4);
          pen.setLineDash([]);
        }
      this.$el.dataset.drawn = rects.length;
      this.$el.dataset.borders = borders;
      this.$el.dataset.selected = selected;
      this.$el.dataset.marked = [...this.marked].join(" ");
    },
    hatch(pen, x, y, w, h, ink) {
      pen.save();
      pen.beginPath();
      pen.rect(x, y, w, h);
      pen.clip();
      pen.strokeStyle = ink;
      pen.globalAlpha = 0.45;
      pen.beginPath();
      for (let at = x - h; at < x + w; at += 6) {
        pen.moveTo(at, y + h);
        pen.lineTo(at + h, y);
      }
      pen.stroke();
      pen.restore();
    },
    write(pen, text, x, y, room, ink, signed) {
      if (room < 9) return;
      pen.fillStyle = ink;
      let shown = text;
      if (pen.measureText(shown).width > room) {
        let low = 0, high = text.length;
        while (low < high) {
          const half = (low + high + 1) >> 1;
          if (pen.measureText(`${text.slice(0, half)}…`).width <= room) low = half;
          else high = half - 1;
        }
        shown = low > (signed ? 0 : 1) ? `${text.slice(0, low)}…` : signed ? text.slice(0, 1) : "";
      }
      pen.fillText(shown, x, y);
    },
    under(event) {
      const at = this.canvas.getBoundingClientRect();
      const px = event.clientX - at.left, py = event.clientY - at.top;
      return this.drawing.rects.findLast((rect) => {
        const { x, y, w, h } = this.box(rect);
        return px >= x && px < x + Math.max(w, 1) && py >= y && py < y + h;
      });
    },
    point(event) {
      const rect = this.under(event);
      this.canvas.style.cursor = rect ? "pointer" : "";
      if (!rect) return this.unpoint();
      this.tip.replaceChildren();
      put(this.tip, "b", "", rect.label);
      for (const line of rect.lines) put(this.tip, "i", "", line);
      this.tip.style.display = "block";
      this.tip.dataset.key = rect.key;
      const wide = this.tip.offsetWidth, high = this.tip.offsetHeight;
      const left = Math.max(8, Math.min(event.clientX + 14, window.innerWidth - wide - 8));
      const under = event.clientY + 18 + high < window.innerHeight;
      this.tip.style.left = `${left}px`;
      this.tip.style.top = `${under ? event.clientY + 16 : Math.max(8, event.clientY - high - 12)}px`;
    },
    unpoint() {
      if (this.tip) this.tip.style.display = "none";
    },
  },
};
