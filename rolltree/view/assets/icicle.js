// A Plotly icicle whose rectangles are chosen, not zoomed into.
export default {
  template: `<div class="icicle"></div>`,
  props: { figure: Object },
  async mounted() {
    const { Plotly } = await import("nicegui-plotly");
    this.plotly = Plotly;
    await this.draw();
    this.watcher = new ResizeObserver(() => this.plotly.Plots.resize(this.$el));
    this.watcher.observe(this.$el);
  },
  unmounted() {
    this.watcher?.disconnect();
  },
  watch: {
    figure() { this.draw(); },
  },
  methods: {
    async draw() {
      if (!this.plotly) return;
      const config = { displayModeBar: false, responsive: false };
      await this.plotly.react(this.$el, this.figure.data, this.figure.layout, config);
      if (!this.listens) {
        this.listens = true;
        this.$el.on("plotly_icicleclick", (event) => {
          this.$emit("pick", event.points[0].id);
          return false;
        });
      }
      this.$el.dataset.drawn = this.figure.data[0].ids.length;
    },
  },
};
