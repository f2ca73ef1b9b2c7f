// What is wrong with the page as it stands in the browser: a list of sentences, empty if all is well.
// `expected.rows` are the title and the durability of every row of the report.
(expected) => {
  const problems = [];
  const all = (selector, from = document) => [...from.querySelectorAll(selector)];
  const short = (text) => text.trim().replace(/\s+/g, ' ').slice(0, 60);
  all('details').forEach((one) => { one.open = true; });

  const root = document.documentElement;
  if (root.scrollWidth > root.clientWidth) {
    problems.push(`the document is ${root.scrollWidth} wide in ${root.clientWidth}`);
  }

  // Every word is large enough, has contrast, and is where it can be read.
  const channels = (colour) => colour.match(/[\d.]+/g).map(Number);
  const luminance = ([r, g, b]) => {
    const part = (c) => (c / 255 <= 0.03928 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4);
    return 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
  };
  const backgroundOf = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const found = channels(getComputedStyle(at).backgroundColor);
      if (found.length === 3 || found[3] > 0) return found;
    }
    return [255, 255, 255];
  };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const seen = new Set();
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || seen.has(element)) continue;
    if (['title', 'desc'].includes(element.localName)) continue;
    seen.add(element);
    const style = getComputedStyle(element);
    if (style.display === 'none') continue;
    const words = short(element.textContent);
    // `sup` is the one exception.
    if (parseFloat(style.fontSize) < (expected.print ? 8 : 14) && element.localName !== 'sup') {
      problems.push(`${style.fontSize} is too small: ${words}`);
    }
    const colour = channels(element instanceof SVGElement ? style.fill : style.color);
    const [a, b] = [luminance(colour), luminance(backgroundOf(element))];
    const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (contrast < 4.5) problems.push(`contrast ${contrast.toFixed(2)}: ${words}`);
    const range = document.createRange();
    range.selectNodeContents(walker.currentNode);
    const box = range.getBoundingClientRect();
    const beyond = box.right > root.clientWidth + 1 || box.left < -1;
    if (beyond && !element.closest('.scroll')) problems.push(`cut off: ${words}`);
    if (box.width > 0 && box.height === 0) problems.push(`flat: ${words}`);
  }

  // Every row is there, with what an acknowledgement means in it.
  const flat = (text) => text.replace(/\s+/g, ' ');
  const places = all('article.card, table.many tbody tr').map((one) => flat(one.textContent));
  for (const [title, durability] of expected.rows) {
    const at = places.filter((text) => text.includes(flat(title)));
    if (!at.length) problems.push(`the row "${short(title)}" is missing`);
    else if (!at.some((text) => text.includes(flat(durability)))) {
      problems.push(`"${short(title)}" does not say its durability: ${short(durability)}`);
    }
  }

  // Plots draw something, inside of themselves, and the names on their axes do not run together.
  const within = (inner, outer) => inner.left >= outer.left - 8 && inner.right <= outer.right + 8
    && inner.top >= outer.top - 8 && inner.bottom <= outer.bottom + 8;
  const apart = (boxes, what) => {
    const visible = boxes.map((one) => one.getBoundingClientRect()).filter((box) => box.width > 0);
    visible.forEach((box, number) => visible.slice(number + 1).forEach((other) => {
      const overlap = box.left < other.right && other.left < box.right
        && box.top < other.bottom && other.top < box.bottom;
      if (overlap) problems.push(`names run together: ${what}`);
    }));
  };
  const plots = all('.area');
  for (const plot of plots) {
    const what = short(plot.querySelector('title')?.textContent ?? '');
    if (!what) problems.push('a plot has no title');
    const figure = plot.closest('figure');
    const frame = plot.getBoundingClientRect();
    if (frame.width < 150 || frame.height < 100) problems.push(`a small plot: ${what}`);
    const lines = all('path.line', plot);
    if (!lines.length) problems.push(`nothing is drawn: ${what}`);
    for (const line of lines) {
      const view = line.ownerSVGElement.viewBox.baseVal;
      const box = line.getBBox();
      const inside = box.x >= -0.5 && box.y >= -0.5
        && box.x + box.width <= view.width + 0.5 && box.y + box.height <= view.height + 0.5;
      if (!inside) problems.push(`a line leaves its view box: ${what}`);
      if (!(line.getTotalLength() > 0)) problems.push(`a line is empty: ${what}`);
    }
    all('use', plot).forEach((marker) => {
      const box = marker.getBoundingClientRect();
      if (!(box.width > 0) || !within(box, frame)) problems.push(`a marker is lost: ${what}`);
    });
    all('text', plot).forEach((text) => {
      const box = text.getBoundingClientRect();
      const caption = figure.querySelector('figcaption').getBoundingClientRect();
      const fits = box.left >= frame.left - 8 && box.right <= frame.right + 8 && box.bottom <= frame.bottom
        && box.top >= caption.bottom - 4;
      if (!fits) problems.push(`a note is cut off: ${what}`);
    });
    apart(all('.x span', figure), `${what}, below`);
    apart(all('.y span', figure), `${what}, at the side`);
    apart(all('text', plot), `${what}, notes`);
    const ids = plot.getAttribute('aria-labelledby').split(' ');
    if (!ids.every((id) => document.getElementById(id))) problems.push(`not described: ${what}`);
  }
  for (const rect of all('.bar rect, .ratio rect')) {
    const [box, frame] = [rect, rect.ownerSVGElement].map((one) => one.getBoundingClientRect());
    if (!within(box, frame) || !(frame.width > 20)) problems.push('a bar leaves its frame');
  }
  if (plots.length < expected.plots) problems.push(`${plots.length} plots only`);
  if (all('.bar').length < expected.bars) problems.push(`${all('.bar').length} bars only`);

  for (const table of all('table')) {
    if (!table.querySelector('thead th[scope=col]')) problems.push('a table without headers');
    if (all('tbody tr', table).some((row) => !row.querySelector('th[scope=row]'))) {
      problems.push(`a line without a header: ${short(table.textContent)}`);
    }
  }
  const ids = all('[id]').map((one) => one.id);
  if (new Set(ids).size !== ids.length) problems.push('an id is there twice');
  for (const link of all('a[href^="#"]')) {
    if (!document.getElementById(link.hash.slice(1))) problems.push(`a dead link: ${link.hash}`);
  }

  // Nothing of what brokers and people named came alive.
  if (window.hostile) problems.push('a hostile script ran');
  if (document.scripts.length) problems.push('there is a script');
  if (all('img, iframe, object, embed, link:not([href="data:,"])').length) {
    problems.push('something is loaded');
  }
  const alive = (one) => [...one.attributes].some((each) => /^on/i.test(each.name));
  if (all('*').some(alive)) problems.push('an element has a handler');
  for (const link of all('a:not([href^="#"])')) {
    if (!/^[\w][\w.-]*$/.test(link.getAttribute('href'))) problems.push(`a link to ${link.href}`);
  }
  return [...new Set(problems)];
}
