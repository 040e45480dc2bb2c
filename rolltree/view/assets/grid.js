// A table of texts and links; the template's braces write text, never markup.
export default {
  template: `<div class="scroll"><table class="grid">
    <thead><tr><th v-for="c in columns" :class="c.kind" :title="c.title || null"
      :aria-sort="c.sorted || null"><a v-if="c.href" :href="c.href">{{ c.text }}</a><template v-else>{{ c.text }}</template></th></tr></thead>
    <tbody><tr v-for="row in rows"><td v-for="(cell, i) in row" :class="columns[i].kind"
      ><a v-if="cell.href" :href="cell.href" :class="i ? '' : 'row-link'">{{ cell.text }}</a
      ><template v-else>{{ cell.text }}</template></td></tr></tbody></table></div>`,
  props: { columns: Array, rows: Array },
};
