() => {
  // The least contrasts of any text with what is behind it, and how many texts there are.
  const parse = (text) => {
    const [r, g, b, a = 1] = text.match(/[\d.]+/g).map(Number);
    return {r, g, b, a};
  };
  const over = (front, back) => {
    const mix = (key) => front.a * front[key] + (1 - front.a) * back[key];
    return {r: mix("r"), g: mix("g"), b: mix("b"), a: 1};
  };
  const behind = (e) => {
    const all = [];
    for (let at = e; at; at = at.parentElement) {
      const {backgroundColor} = getComputedStyle(at);
      all.push(parse(backgroundColor));
    }
    const paper = {r: 255, g: 255, b: 255, a: 1};
    return all.reduceRight((back, front) => over(front, back), paper);
  };
  const luminance = ({r, g, b}) => [r, g, b]
    .map((v) => v / 255)
    .map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const opacity = (e) => {
    let found = 1;
    for (let at = e; at; at = at.parentElement) {
      found *= Number(getComputedStyle(at).opacity);
    }
    return found;
  };
  const contrast = (text, e) => {
    const back = behind(e);
    const front = over({...text, a: text.a * opacity(e)}, back);
    const [low, high] = [luminance(front), luminance(back)].sort((a, b) => a - b);
    return (high + 0.05) / (low + 0.05);
  };
  const found = [];
  for (const e of document.querySelectorAll("body *")) {
    if (!e.checkVisibility() || e.closest("script, noscript, .modebar")) continue;
    const own = [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim());
    const svg = e instanceof SVGElement;
    if (own) {
      const style = getComputedStyle(e);
      found.push([contrast(parse(svg ? style.fill : style.color), e), e]);
    }
    if (e.matches("input:not([type=range]):not([type=radio])")) {
      found.push([contrast(parse(getComputedStyle(e).color), e), e]);
      found.push([contrast(parse(getComputedStyle(e, "::placeholder").color), e), e]);
    }
  }
  return found.map(([value, e]) => [value, e.outerHTML.slice(0, 160)])
    .sort((a, b) => a[0] - b[0]).slice(0, 3).concat([[found.length, "texts"]]);
}
