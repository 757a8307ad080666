"""Which language the window speaks, whether this machine can draw it, and Qt's own words in it."""

from __future__ import annotations

from PySide6.QtCore import QLibraryInfo, QLocale, QTranslator
from PySide6.QtGui import QFont, QFontDatabase
from PySide6.QtWidgets import QApplication

from explorer.gui import language
from explorer.gui.language import Language
from explorer.gui.settings import LanguageChoice

CHINESE_FONTS = (
    "Noto Sans CJK SC",
    "Source Han Sans SC",
    "Microsoft YaHei",
    "PingFang SC",
    "WenQuanYi Micro Hei",
    "WenQuanYi Zen Hei",
)
"""Those that draw simplified forms, the best known first: without a name Qt may take a Japanese one."""
NO_CHINESE_FONT = (
    "Chinese needs a font, and this machine has none. On Debian or Ubuntu: sudo apt-get install -y fonts-wqy-microhei "
    "(or fonts-noto-cjk). Then open the window again."
)
_QT_WORDS = "qt_words"


def spoken(choice: LanguageChoice) -> Language:
    """The language that ``choice`` means on this system."""
    if choice != "system":
        return choice
    system = QLocale.system()
    simplified = system.script() == QLocale.Script.SimplifiedHanScript
    return "zh_CN" if system.language() == QLocale.Language.Chinese and simplified else "en"


def missing_font(wanted: Language) -> str | None:
    """Why this machine cannot draw ``wanted``, in English, which it can; None where it can."""
    if wanted == "en" or QFontDatabase.families(QFontDatabase.WritingSystem.SimplifiedChinese):
        return None
    return NO_CHINESE_FONT


def speak(app: QApplication, wanted: Language) -> None:
    """Speak ``wanted`` in all that is shown from now on, Qt's own buttons and dialogs included."""
    language.use(wanted)
    for old in app.findChildren(QTranslator, _QT_WORDS):
        app.removeTranslator(old)
        old.deleteLater()
    font = QFontDatabase.systemFont(QFontDatabase.SystemFont.GeneralFont)
    if wanted != "en":
        words = QTranslator(app)
        words.setObjectName(_QT_WORDS)
        if words.load(f"qtbase_{wanted}", QLibraryInfo.path(QLibraryInfo.LibraryPath.TranslationsPath)):
            app.installTranslator(words)
        here = set(QFontDatabase.families())
        font.setFamilies([font.family(), *(name for name in CHINESE_FONTS if name in here)])
    if app.font().families() != font.families():
        app.setFont(QFont(font))
