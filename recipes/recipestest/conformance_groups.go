package recipestest

var (
	pitfallsOfClosing []pitfall // E 52-63
)
