package recipestest

var pitfallsOfMembership []pitfall
