"""Words that several targets put texts together from."""

MATH = (
    *"0123456789+-*/^=!%(){}[]$.,;:?#&~|<>\\\n ",
    *(" = ", " + ", " / ", "12", "1,000", "0.5", "\\frac", "\\sqrt", "\\binom", "{", "}"),
    *("\\boxed{", "\\text{", "\\left(", "\\right)", "\\times", "\\cdot", "\\approx", "\\neq"),
    *("####", "The answer is ", " apples", " red", " if", " about", " remainder", " of", " and "),
    *("Check: ", " not ", "\x0c", "\u00d7", "\u2212", "\u2248", "\uff11", "\u00b2", "\u0661"),
    *("\u200f", "\x00", "\ud800", "\t", "**", "9**9**9", "9^{9^{9}}", "x"),
    *("\\quad", "\\\\", "mod "),
)
