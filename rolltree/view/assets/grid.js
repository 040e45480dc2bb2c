// A table of texts and links; the template's braces write text, never markup. Rows are kept while they are updated, so
// that the focus, the selection and the place one has scrolled to stay.
export default {
  template: `<div class="scroll" tabindex="0" role="region" :aria-label="name"><table class="grid" :aria-label="name">
    <thead><tr><th v-for="c in columns" :key="c.text" scope="col" :class="c.kind" :title="c.title || null"
      :aria-sort="c.sorted || null"><a v-if="c.href" :href="c.href">{{ c.text }}</a><template v-else>{{ c.text }}</template></th></tr></thead>
    <tbody><tr v-for="row in rows" :key="row[0].href || row[0].text"><td v-for="(cell, i) in row" :key="i"
      :class="columns[i].kind" :title="cell.title || null"
      ><a v-if="cell.href" :href="cell.href" :class="[i ? '' : 'row-link', cell.kind]">{{ cell.text }}</a
      ><span v-else-if="cell.kind" :class="cell.kind">{{ cell.text }}</span
      ><template v-else><i v-if="cell.colour" class="box" :style="{ background: cell.colour }" aria-hidden="true"></i
      >{{ cell.text }}</template></td></tr></tbody></table></div>`,
  props: { columns: Array, rows: Array, name: String },
};
