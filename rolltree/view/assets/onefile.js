// One tree in one file. Everything from a model, a tool or a prompt is set as text content, never as markup.
(() => {
  const data = JSON.parse(document.getElementById("tree").textContent);
  const page = document.getElementById("page");
  const nodes = data.nodes;
  nodes.forEach((n, i) => { n.row = i; n.children = []; n.depth = n.parent < 0 ? 0 : nodes[n.parent].depth + 1; });
  nodes.forEach((n) => { if (n.parent >= 0) nodes[n.parent].children.push(n); });
  document.body.classList.toggle("body--dark", matchMedia("(prefers-color-scheme: dark)").matches);
  for (const n of nodes) {  // parents come before children
    const above = n.parent < 0 ? null : nodes[n.parent];
    n.left = n.filled = above ? above.filled : 0;
    if (above) above.filled += n.leaves;
  }
  const best = (node) => Number(new Map(node.about).get("mean reward below") ?? -Infinity);
  let chosen = nodes.filter((n) => !n.children.length).reduce((a, b) => (best(b) > best(a) ? b : a));
  let colour = data.colourings.find((c) => c.any) || data.colourings[0];

  put(page, "h1", "", data.title);
  const about = put(page, "dl", "facts");
  for (const [name, value] of data.about) { put(about, "dt", "", name); put(about, "dd", "", value); }
  const bar = put(page, "div", "bar");
  bar.setAttribute("role", "group");
  bar.setAttribute("aria-label", "colour by");
  const buttons = data.colourings.map((c) => {
    const made = put(bar, "button", `plain colour-${c.name}`, c.name);
    made.disabled = !c.any;
    made.title = c.any ? c.title : `${c.title}: not recorded in this tree`;
    made.addEventListener("click", () => { colour = c; draw(); });
    return made;
  });
  const legend = put(page, "div", "legend");
  const picture = put(page, "div", "picture rects");
  picture.setAttribute("role", "group");
  picture.setAttribute("aria-label", "the tree: a rectangle per node, as wide as the leaves below it");
  const halves = put(page, "div", "halves");
  const left = put(halves, "div", ""), right = put(halves, "div", "");
  const title = put(left, "h2", "", "");
  const strip = put(left, "div", "strip");
  const host = { ...TOKENS.methods, $el: strip, runs: [], palette: [], inks: [], chosen: -1,
    $emit: (_, id) => pick(nodes.find((n) => n.node === id)) };
  TOKENS.mounted.call(host);

  const row = 24;
  picture.style.height = `${row * (1 + nodes.reduce((most, n) => Math.max(most, n.depth), 0)) + 12}px`;
  const rects = nodes.map((n) => {
    const made = put(picture, "button", "rect", `${n.node} ${n.texts.join("").slice(0, 60)}`);
    made.dataset.node = n.node;
    made.title = n.title;
    made.style.left = `${(100 * n.left) / nodes[0].leaves}%`;
    made.style.width = `${(100 * n.leaves) / nodes[0].leaves}%`;
    made.style.top = `${row * n.depth + 6}px`;
    made.addEventListener("click", () => pick(n));
    return made;
  });
  new ResizeObserver(() => {  // narrow ones have no room for a border
    const leaf = picture.clientWidth / nodes[0].leaves;
    rects.forEach((r, i) => r.classList.toggle("narrow", nodes[i].leaves * leaf < 6));
  }).observe(picture);

  const pick = (node) => { if (node) { chosen = node; draw(); } };
  const path = (node) => {
    const out = [node];
    while (out[0].parent >= 0) out.unshift(nodes[out[0].parent]);
    return out;
  };
  const number = (value) => String(Math.round(value * 1000) / 1000);
  const draw = () => {
    buttons.forEach((b, i) => b.classList.toggle("on", data.colourings[i] === colour));
    legend.replaceChildren();
    put(legend, "span", "", colour.title);
    if (colour.names.length) colour.names.forEach((name, i) => {
      const item = put(legend, "span", "");
      put(item, "span", "box").style.background = colour.palette[i];
      put(item, "span", "", name);
    });
    else {
      put(legend, "span", "", number(colour.low));
      put(legend, "span", "ramp").style.background = `linear-gradient(90deg, ${colour.palette.filter((_, i) => i % 4 === 0).join(",")})`;
      put(legend, "span", "", number(colour.high));
    }
    rects.forEach((r, i) => {
      const shade = nodes[i].shade[colour.name];
      r.style.background = shade < 0 ? "" : colour.palette[shade];
      r.style.color = shade < 0 ? "" : colour.inks[shade];
      r.classList.toggle("chosen", nodes[i] === chosen);
      r.setAttribute("aria-pressed", String(nodes[i] === chosen));
      r.tabIndex = nodes[i] === chosen ? 0 : -1;
    });
    const runs = path(chosen);
    title.textContent = `The path to node ${chosen.node}: ${runs.reduce((sum, n) => sum + n.texts.length, 0)} tokens`;
    host.palette = colour.palette;
    host.inks = colour.inks;
    let start = 0;
    host.runs = runs.map((n) => {
      const run = { ...n, start, shades: n.shades[colour.name] };
      start += n.texts.length;
      return run;
    });
    host.chosen = chosen.node;
    host.draw();
    right.replaceChildren();
    put(right, "h2", "", `Node ${chosen.node}`);
    const facts = put(right, "dl", "facts");
    for (const [name, value] of chosen.about) { put(facts, "dt", "", name); put(facts, "dd", "", value); }
    const told = data.events.filter((e) => e.node === chosen.node);
    if (told.length) put(right, "h2", "", "Decisions here");
    const list = put(right, "ul", "events");
    for (const event of told) {
      const item = put(list, "li", "", event.sentence);
      if (event.numbers.length) put(item, "div", "numbers", event.numbers.map((n) => n.join(" ")).join(" · "));
    }
  };
  picture.addEventListener("keydown", (event) => {
    const above = nodes[chosen.parent];
    const beside = above ? above.children : [chosen];
    const to = { ArrowUp: above, ArrowDown: chosen.children[0], Home: nodes[0],
      ArrowLeft: beside[beside.indexOf(chosen) - 1], ArrowRight: beside[beside.indexOf(chosen) + 1] }[event.key];
    if (!to) return;
    event.preventDefault();
    pick(to);
    rects[to.row].focus();
  });
  draw();
})();
