"""How bytes come from machines and go there: asked for in windows that fit the way between."""
