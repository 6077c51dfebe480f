"""Kinds of problems that a corpus may have, as reports and `--ignore` name them."""

MISSING = "missing"
UNREADABLE = "unreadable"
TRUNCATED = "truncated"
SAMPLE_RATE = "sample_rate"
STEREO = "stereo"
SILENT = "silent"
CLIPPED = "clipped"
DURATION = "duration"
EMPTY_TEXT = "empty_text"
UNKNOWN_CHARACTER = "unknown_character"
DUPLICATE_ID = "duplicate_id"
NO_TRANSCRIPT = "no_transcript"
BAD_LINE = "bad_line"

MEANINGS = {
    MISSING: "no such audio file, or one that can't be rendered",
    UNREADABLE: "not audio, or it holds NaN or infinity",
    TRUNCATED: "audio of which a part is missing, or whose header was never finished",
    SAMPLE_RATE: "sampling rate outside of 4 to 384 kHz, or one that header or content contradict",
    STEREO: "more than one channel; training averages them",
    SILENT: "no audio, or none above -60 dBFS",
    CLIPPED: "at least 0.1% of the samples flat at full scale",
    DURATION: "duration or span that differs from the audio by more than 0.05 s",
    EMPTY_TEXT: "no text, or white space and marks that can't be seen",
    UNKNOWN_CHARACTER: "text with characters that the tokenizer of --tokenizer doesn't know",
    DUPLICATE_ID: "id that an earlier utterance has",
    NO_TRANSCRIPT: "audio without a transcript",
    BAD_LINE: "line or file name that can't be understood",
}
# What no manifest can hold, so that even --fix keep leaves it out.
NEVER_WRITTEN = frozenset({MISSING, DUPLICATE_ID, NO_TRANSCRIPT, BAD_LINE})
