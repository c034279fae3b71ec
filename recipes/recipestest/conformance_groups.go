package recipestest

var (
	pitfallsOfSessions []pitfall // C 25-35
	pitfallsOfTime     []pitfall // D 36-51
	pitfallsOfClosing  []pitfall // E 52-63
	pitfallsOfTokens   []pitfall // J 97-98
)
