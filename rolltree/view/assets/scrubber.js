// One prompt's branches at a step; the slider moves through the steps, and branches grow and shrink.
const shade = (rate) => {
  if (rate === null) return "";
  const low = [194, 81, 47], middle = [241, 235, 221], high = [31, 122, 92];
  const [a, b, t] = rate < 0.5 ? [low, middle, rate * 2] : [middle, high, rate * 2 - 1];
  return `rgb(${a.map((v, i) => Math.round(v + (b[i] - v) * t)).join(",")})`;
};
// Black or white, whichever has more contrast (WCAG 2) with a colour; both have the same at a luminance of 0.179.
const ink = (colour) => {
  const [r, g, b] = colour.match(/\d+/g).map((v) => (v / 255 <= 0.04045 ? v / 3294.6 : ((v / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.179 ? "#000" : "#fff";
};
export default {
  template: `<div class="scrubber"><label class="bar">step <output>{{ data.steps[at] }}</output>
    <input type="range" min="0" :max="data.steps.length - 1" v-model.number="at" aria-label="training step"
      :aria-valuetext="'step ' + data.steps[at]"></label>
    <div class="picture modes" :data-at="data.steps[at]" :style="{ height: height + 'px' }">
      <div v-for="(mode, i) in data.modes" :key="i" class="mode"
        :class="{ narrow: mode.share[at] * wide < 6 }" :style="places[i]"
        :title="said(mode)">{{ mode.text }}</div></div></div>`,
  props: { data: Object },
  data() { return { at: 0, wide: 0 }; },
  mounted() {
    this.at = this.data.steps.length - 1;
    this.sizes = new ResizeObserver(() => { this.wide = this.$el.querySelector(".modes").clientWidth; });
    this.sizes.observe(this.$el);
  },
  unmounted() { this.sizes?.disconnect(); },
  computed: {
    height() { return 26 * (1 + Math.max(...this.data.modes.map((m) => m.depth))) + 8; },
    places() {
      const left = [], filled = [];
      return this.data.modes.map((mode, i) => {
        left[i] = mode.parent < 0 ? 0 : filled[mode.parent];
        filled[i] = left[i];
        const share = mode.share[this.at];
        if (mode.parent >= 0) filled[mode.parent] += share;
        const rate = mode.solved[this.at];
        const ground = shade(rate);
        return { left: `${100 * left[i]}%`, width: `${100 * share}%`, top: `${26 * mode.depth + 4}px`,
          background: ground, color: ground ? ink(ground) : "",
          visibility: share > 0 ? "visible" : "hidden" };
      });
    },
  },
  methods: {
    said(mode) {
      const rate = mode.solved[this.at];
      return `${mode.text}\n${(100 * mode.share[this.at]).toFixed(0)} % of step ${this.data.steps[this.at]} (${mode.leaves[this.at]} rollouts)`
        + (rate === null ? "" : `, ${(100 * rate).toFixed(0)} % of them right`);
    },
  },
};
