import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.Statement;
import org.apache.hadoop.hive.metastore.HiveMetaStore;
import org.apache.hadoop.hive.metastore.conf.MetastoreConf;
import org.apache.hadoop.hive.metastore.conf.MetastoreConf.ConfVars;

/**
 * Hive Metastore 4 with the tables of its locks. DataNucleus makes all others, but only Hive's own
 * scripts make these, and no jar has the scripts.
 */
public class Metastore4 {
    private static final String[] TABLES = {
        "CREATE TABLE NEXT_LOCK_ID (NL_NEXT BIGINT NOT NULL)",
        "INSERT INTO NEXT_LOCK_ID VALUES (1)",
        "CREATE TABLE HIVE_LOCKS (HL_LOCK_EXT_ID BIGINT NOT NULL, HL_LOCK_INT_ID BIGINT NOT NULL,"
            + " HL_TXNID BIGINT NOT NULL, HL_DB VARCHAR(128) NOT NULL, HL_TABLE VARCHAR(256),"
            + " HL_PARTITION VARCHAR(767), HL_LOCK_STATE CHAR(1) NOT NULL,"
            + " HL_LOCK_TYPE CHAR(1) NOT NULL, HL_LAST_HEARTBEAT BIGINT NOT NULL,"
            + " HL_ACQUIRED_AT BIGINT, HL_USER VARCHAR(128) NOT NULL,"
            + " HL_HOST VARCHAR(128) NOT NULL, HL_HEARTBEAT_COUNT INTEGER,"
            + " HL_AGENT_INFO VARCHAR(128), HL_BLOCKEDBY_EXT_ID BIGINT,"
            + " HL_BLOCKEDBY_INT_ID BIGINT, HL_ERROR_MESSAGE VARCHAR(4000),"
            + " PRIMARY KEY (HL_LOCK_EXT_ID, HL_LOCK_INT_ID))",
    };

    public static void main(String[] words) throws Throwable {
        String url = MetastoreConf.getVar(MetastoreConf.newMetastoreConf(), ConfVars.CONNECT_URL_KEY);
        String user = MetastoreConf.getVar(
            MetastoreConf.newMetastoreConf(), ConfVars.CONNECTION_USER_NAME);
        try (Connection connection = DriverManager.getConnection(url, user, "");
                Statement statement = connection.createStatement()) {
            for (String sql : TABLES) {
                statement.execute(sql);
            }
        }
        HiveMetaStore.main(words);
    }
}
