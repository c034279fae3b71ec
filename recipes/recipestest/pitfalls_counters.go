package recipestest

var pitfallsOfCounters []pitfall
