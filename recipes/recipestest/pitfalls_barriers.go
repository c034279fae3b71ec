package recipestest

var pitfallsOfBarriers []pitfall
